"""What a receipt proves of a run that was left alone, changed, or gone on with."""

import pytest

from headrace.inspect.history.receipts import FoundChain, chain_holds, checked_receipt, judge_receipt
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.receipts import CoveredRange, Receipt, ReceiptLine


@pytest.fixture
def whole() -> FoundChain:
    """Two lines: ten bytes of a file, and ten more."""
    first = ReceiptLine(t=1, step=1, previous="", files={"e": CoveredRange(begin=0, end=10, sha256="x")})
    files = {"e": CoveredRange(begin=10, end=20, sha256="y")}
    second = ReceiptLine(t=2, step=2, previous="r1", files=files)
    chained = (Receipt(value="r1", line=first), Receipt(value="r2", line=second))
    return FoundChain(receipts=chained, ranges={(0, "e"): "x", (1, "e"): "y"}, sizes={"e": 20})


def test_a_receipt_chain_holds_while_its_files_keep_the_covered_bytes(whole: FoundChain) -> None:
    assert list(chain_holds(whole)) == []
    changed = FoundChain(receipts=whole.receipts, ranges={(0, "e"): "z", (1, "e"): "y"}, sizes=whole.sizes)
    assert list(chain_holds(changed)) == ["e was changed between byte 0 and 10, which the receipt of step 1 covers"]
    cut = FoundChain(receipts=whole.receipts, ranges={(0, "e"): "x", (1, "e"): None}, sizes={"e": 15})
    assert list(chain_holds(cut)) == ["e is shorter than its receipt of step 2 covers, or gone"]
    loose = FoundChain(receipts=whole.receipts[1:], ranges={(0, "e"): "y"}, sizes=whole.sizes)
    assert [one.partition(" e ")[0] for one in chain_holds(loose)] == [
        "receipts.jsonl line 1 does not follow the line before it",
        "receipts.jsonl line 1 covers",
    ]


def test_a_valid_receipt_reports_what_it_does_not_cover(whole: FoundChain) -> None:
    assert judge_receipt(whole, "r2", 2) == ("", "the receipt of step 2 covers the whole run")
    assert judge_receipt(whole, "r1", 2) == ("", "the receipt is of step 1, and holds; the run went on to step 2")
    grown = FoundChain(receipts=whole.receipts, ranges=whole.ranges, sizes={"e": 25, "f": 3})
    said = "the receipt of step 2 holds; 8 bytes that were written after it are not covered by it"
    assert judge_receipt(grown, "r2", 2) == ("", said)
    foreign, note = judge_receipt(whole, "r3", 2)
    assert "is none of this run" in foreign and not note


@pytest.mark.parametrize("text", ["", "0" * 64, "A" * 64])
def test_a_receipt_is_64_hex_digits(text: str) -> None:
    assert checked_receipt(text) == text.lower()
    with pytest.raises(ConfigError, match="give the 64 hex digits"):
        checked_receipt(text + "g")
