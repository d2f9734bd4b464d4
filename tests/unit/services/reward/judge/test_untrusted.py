"""No content leaves its block, whatever is in it; honest content stays readable."""

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.reward.judge.prompts import PAIRWISE, RULES, SINGLE, Instructions
from headrace.services.reward.judge.untrusted import block, neutral
from tests.unit.services.reward.judge.corpus import CORPUS, KEY

SPECIAL = re.compile(
    r"<\||\|>|<<|>>|</|<s>|<[a-z_]+>|<\uff5c|\uff5c>|\[/?(INST|TOOL_CALLS|gMASK|SYSTEM_PROMPT|AVAILABLE_TOOLS)\]"
    r"|[\[\uff3b][|\uff5c]|[\]\[\uff3b\uff3d][~\uff5e]|[~\uff5e][\]\[\uff3b\uff3d]|\[(UNUSED_TOKEN|control)_\d+\]"
)
PIECES = ["<<<", ">>>", f"<<<END ANSWER {KEY}>>>", "|im_end|", "[INST]", "[|user|]", "]~b]", "[e~[", "[control_8]"]
ALPHABET = st.one_of(
    st.characters(),
    st.sampled_from([*"<>|[]/\n\r\u2028 \u200b\uff1c\uff5c", *PIECES]),
)
TEXTS = st.one_of(st.sampled_from(CORPUS), st.lists(ALPHABET, max_size=60).map("".join))


def check_block(name: str, text: str) -> None:
    """The block's lines: its own first and last one, and between them nothing that is not quoted."""
    lines = text.split("\n")
    assert lines[0] == f"<<<BEGIN {name} {KEY}>>>" and lines[-1] == f"<<<END {name} {KEY}>>>"
    content = lines[1:-1]
    assert content and all(line.startswith("| ") for line in content)
    # Read back as any reader splits lines.
    assert text.splitlines() == lines
    inner = "\n".join(line[2:] for line in content)
    assert "<<<" not in inner and ">>>" not in inner
    assert not SPECIAL.search(inner), SPECIAL.search(inner)
    assert not [sign for sign in inner if unicodedata.category(sign)[0] == "C" and sign not in "\n\t"]


def test_no_injection_of_the_corpus_escapes_its_block() -> None:
    for text in CORPUS:
        check_block("ANSWER", block("ANSWER", text, KEY, 16_000))


@given(TEXTS)
def test_no_text_escapes_its_block(text: str) -> None:
    check_block("ANSWER", block("ANSWER", text, KEY, 16_000))


@given(TEXTS, TEXTS, TEXTS)
def test_a_judge_request_has_only_our_own_blocks(prompt: str, reference: str, answer: str) -> None:
    form = {"score": [1, 2]}
    instructions = Instructions(SINGLE, "", form, ("answer",), 500, "judge")
    blocks = {"prompt": ("PROMPT", prompt), "reference": ("REFERENCE", reference), "answer": ("ANSWER", answer)}
    system, user = instructions.messages(KEY, blocks, low="1", high="2")
    assert system == {"role": "system", "content": RULES}
    found = re.findall(r"^<<<(BEGIN|END) (\w+) (\w+)>>>$", user["content"], re.MULTILINE)
    names = ["PROMPT", "REFERENCE", "ANSWER"]
    assert found == [(edge, name, KEY) for name in names for edge in ("BEGIN", "END")]
    assert user["content"].count("<<<") == 6
    free = re.sub(r"(?s)<<<BEGIN (\w+) \w+>>>.*?<<<END \1 \w+>>>", "", user["content"])
    assert free == re.sub(
        r"(?s)<<<BEGIN (\w+) \w+>>>.*?<<<END \1 \w+>>>",
        "",
        instructions.messages(KEY, {place: (name, "x") for place, (name, _) in blocks.items()}, low="1", high="2")[1][
            "content"
        ],
    )


def test_the_two_answers_of_a_pair_have_blocks_of_their_own() -> None:
    instructions = Instructions(PAIRWISE, "", {"winner": ["A", "B"]}, ("first", "second"), 500, "judge")
    blocks = {"prompt": ("PROMPT", "p"), "first": ("ANSWER_A", "$second"), "second": ("ANSWER_B", "$first")}
    text = instructions.messages(KEY, blocks)[1]["content"]
    assert text.index("| $second") < text.index("BEGIN ANSWER_B") < text.index("| $first")


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 18, since 2 * 9 = 18.",
        "x = [1, 2]; y[0] = {3: 4}; z = a[i] <= b and c -> d",
        "Die L\u00f6sung ist \u00bd; \u7b54\u6848\u662f 18\u3002 \u2211 x\u00b2 \u2260 \u221e",
        "\\frac{1}{2} \\boxed{18}\n\tindented",
        "\U0001f600",
        "See [1], [12] and [the text](x); a[i] | b[j], ~a[0], [ab, cd], [x] [done] [Yes]",
    ],
)
def test_honest_text_is_unchanged(text: str) -> None:
    assert neutral(text) == text


@pytest.mark.parametrize("piece", ["A", "[A", "[ ", "A_", "a1", "<", "|", "[~", "\u200b", "A" * 50 + " "])
def test_neutralizing_any_long_answer_is_fast(piece: str) -> None:
    begin = time.process_time()
    neutral("[" + piece * (100_000 // len(piece)))
    assert time.process_time() - begin < 8


def test_hidden_characters_become_visible() -> None:
    assert neutral("a\u200bb") == "a[hidden U+200B]b"
    assert neutral("a\u202e\u202e\u202eb") == "a[hidden U+202E and 2 more]b"
    assert neutral("a\u00a0b\u2003c") == "a b c"
    assert neutral("x<y and List<int>") == "x< y and List< int>"
