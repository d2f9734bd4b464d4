"""Has the conversations of a kind with the policy."""

import sys
from pathlib import Path

import httpx
from openai import OpenAI

endpoint, key, model, kind, witness = sys.argv[1:]
client = OpenAI(base_url=endpoint, api_key=key, max_retries=0, timeout=200)


def ask(*messages, client=client):
    answer = client.chat.completions.create(model=model, messages=list(messages)).choices[0].message
    return {"role": "assistant", "content": answer.content}


def user(text):
    return {"role": "user", "content": text}


first = user("first")
if kind in ("linear", "broken metric"):
    said = ask(first)
    ask(first, said, user("go on"))
elif kind == "fork":
    said = ask(first)
    ask(first, said, user("one way"))
    ask(first, said, user("another way"))
elif kind == "compaction":
    said = ask(first)
    ask(first, said, user("go on"))
    ask(user("first, in short: go on"))
elif kind == "retry":
    # The SDK gives up the first request and repeats it.
    asked = []

    def count(request):
        asked.append(request.headers["x-stainless-retry-count"])
        Path(f"{witness}.asked").write_text(" ".join(asked))

    http = httpx.Client(event_hooks={"request": [count]})
    hasty = OpenAI(
        base_url=endpoint, api_key=key, max_retries=30, timeout=httpx.Timeout(200, read=1.0), http_client=http
    )
    said = ask(first, client=hasty)
    ask(first, said, user("go on"))
elif kind == "many":
    for number in range(9):
        ask(user(f"first {number}"))
