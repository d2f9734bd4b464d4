"""The task of this example as a program that asks an OpenAI-compatible endpoint. Only the standard library."""

import json
import os
import urllib.request
from typing import Any

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
        },
    }
    for name, description, argument in (
        ("find", "Finds the shelf of an item.", "item"),
        ("count", "Counts the pieces on a shelf.", "shelf"),
    )
]


def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The policy's next message."""
    head = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": messages, "tools": TOOLS}).encode()
    asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, head)
    with urllib.request.urlopen(asked) as answer:
        message: dict[str, Any] = json.load(answer)["choices"][0]["message"]
        return message


def use(task: dict[str, str], name: str, arguments: dict[str, Any]) -> str:
    """What a tool answers."""
    if name == "find":
        return task["shelf"] if arguments.get("item") == task["item"] else "none"
    if name == "count":
        return task["pieces"] if arguments.get("shelf") == task["shelf"] else "0"
    return "no such tool"


def main() -> None:
    """Asks, and calls tools, until the policy answers."""
    with open("task.json") as file:
        task = json.load(file)
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"How many {task['item']}?"}]
    for _ in range(4):
        messages.append(ask(messages))
        calls = messages[-1].get("tool_calls")
        if not calls:
            break
        for call in calls:
            said = use(task, call["function"]["name"], json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})
    with open("answer.txt", "w") as file:
        file.write(str(messages[-1].get("content") or ""))


if __name__ == "__main__":
    main()
