"""What `make chaos` has found is counted by service and point, and written as it was found."""

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.failpoints.counting import gaps
from tests.chaos.failpoints.expected import ELSEWHERE, NEVER, NOT_STRUCK
from tests.chaos.failpoints.reachable import of_services
from tests.chaos.failpoints.report import fault_table, table, too_slow, write

NAN = float("nan")


def section(*runs: list[tuple[str, float]], seconds: float = 60.0, **more: Any) -> dict[str, Any]:
    made = [
        {
            "strikes": [{"name": name, "recovery_s": recovery_s} for name, recovery_s in strikes],
            "plain_kills": 1,
            "lost": number,
            "doubled": 0,
        }
        for number, strikes in enumerate(runs)
    ]
    return {"seed": 7, "seconds": seconds, "runs": made, "not_again": [], **more}


def struck_in_a_whole_campaign() -> frozenset[str]:
    return of_services() - ELSEWHERE.keys() - NEVER.keys() - NOT_STRUCK.keys()


def test_a_point_that_one_service_was_struck_at_is_none_of_another() -> None:
    assert gaps(struck_in_a_whole_campaign()) == []
    left = struck_in_a_whole_campaign() - {"trainer.stream.acked"}
    (problem,) = gaps(left | {"orchestrator.stream.settled"})
    assert "no process was killed at trainer.stream.acked" in problem
    whole = struck_in_a_whole_campaign()
    (missed,) = gaps(whole, of_services() | {"reward.journal.synced"})
    assert "no process was killed at reward.journal.synced" in missed


def test_a_table_that_a_campaign_contradicts_is_a_problem_and_a_kill_by_chance_is_none() -> None:
    never, chance = next(iter(NEVER)), next(iter(ELSEWHERE))
    (wrong,) = gaps(struck_in_a_whole_campaign() | {never, chance})
    assert f"a process was killed at {never}" in wrong
    (unknown,) = gaps(struck_in_a_whole_campaign() | {"reward.journal.synced"})
    assert "`reachable.py` does not find" in unknown


def test_kills_are_rows_of_a_service_and_a_kind() -> None:
    strikes = [("trainer.event.appended", 2.0), ("trainer.event.before_append", 4.0), ("reward.stream.read", NAN)]
    made = table(section(strikes, [("trainer.event.appended", 9.0)], not_again=["orchestrator.stream.renewed"]))
    assert "2 runs, 4 kills at 3 failpoints and 2 wherever the service stood, seed 7: 1 groups lost, 0 trained" in made
    assert "| trainer | an event | 2 | 3 | 4.0 | 9.0 |" in made.splitlines()
    assert "| 1 | 1 | - | - |" in made
    assert made.endswith("not again while it was armed: `orchestrator.stream.renewed`.\n")


def test_faults_are_rows_with_what_their_runs_have_lost() -> None:
    made = fault_table(section([("broker killed", 3.0)], [("broker killed", 6.0), ("broker emptied", 5.0)]))
    assert "2 runs, 3 faults, seed 7: 1 groups lost" in made
    assert "| broker emptied | 1 | 1 | 0 | 5.0 | 5.0 |" in made.splitlines()
    assert "| broker killed | 2 | 1 | 0 | 4.5 | 6.0 |" in made.splitlines()


def test_each_section_has_its_marks_and_one_that_was_not_found_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- chaos -->\nold\n<!-- /chaos -->\nb\n<!-- faults -->\nolder\n<!-- /faults -->\nc\n")
    write({"faults": section([("broker killed", 3.0)])}, page)
    first, _, second = page.read_text().partition("b\n")
    assert first == "a\n<!-- chaos -->\nold\n<!-- /chaos -->\n"
    assert "older" not in second and "| broker killed |" in second and second.endswith("<!-- /faults -->\nc\n")
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no <!-- faults -->"):
        write({"faults": section([])}, page)
    assert page.read_text() == "no marks"


def test_all_sections_together_have_the_bound() -> None:
    assert too_slow({"failpoints": section(seconds=900), "faults": section(seconds=900)}, 1800) == ""
    assert "took 1801 s" in too_slow({"failpoints": section(seconds=901), "faults": section(seconds=900)}, 1800)
