"""Every effect that outlives a process has a failpoint beside it, and every service dies at all that it reaches."""

from tests.chaos.failpoints.expected import BY_CHANCE, ELSEWHERE, NEVER, NOT_STRUCK, WITHOUT
from tests.chaos.failpoints.reachable import SERVICES, of_services
from tests.chaos.failpoints.source import ROOT, effects_without_a_point, points, served

OF_COMMANDS = {"GetReplicaRequest", "GetTrainerRequest", "ListScorersRequest", "ScoreRequest"}
"""Requests that an orchestrator may make, and none does."""


def test_every_lasting_effect_has_a_failpoint_in_its_function() -> None:
    assert effects_without_a_point() == sorted(WITHOUT)


def test_the_tables_name_points_that_a_service_may_reach_each_in_one_of_them() -> None:
    tables = [*ELSEWHERE, *NEVER, *NOT_STRUCK]
    assert not set(tables) - of_services()
    assert len(tables) == len(set(tables))
    assert not BY_CHANCE - points()


def test_tests_that_strike_elsewhere_exist_and_each_reason_is_one() -> None:
    assert not [file for file in set(ELSEWHERE.values()) if not (ROOT / file).is_file()]
    assert all(" " in reason for reason in (*NEVER.values(), *NOT_STRUCK.values()))


def test_every_service_that_is_derived_has_an_entry_and_every_point_a_service() -> None:
    assert set(SERVICES) == {"environment", "orchestrator", "reward", "rollout", "trainer"}
    # Requests that commands of people make alone.
    asked = {method.input_type.name for _, method, roles in served() if not roles & set(SERVICES)}
    of_people = {point for point in points() if point.rpartition(".")[2] in asked | OF_COMMANDS}
    assert points() - {name.partition(".")[2] for name in of_services()} == of_people


def test_the_derivation_follows_imports_calls_and_roles() -> None:
    """Each of these is so by the source: a wider derivation would ask for kills that cannot be."""
    found = of_services()
    assert {"trainer.journal.synced", "orchestrator.database.committed", "orchestrator.vote.synced"} <= found
    assert {name.partition(".")[0] for name in found if ".journal." in name} == {"trainer"}
    assert {name.partition(".")[0] for name in found if ".line." in name} == {"orchestrator", "trainer"}
    assert {name.partition(".")[0] for name in found if ".stream." in name} == set(SERVICES)
    assert {name for name in found if "TakeTurn" in name} == {
        "orchestrator.rpc.served.TakeTurn",
        "trainer.rpc.before_call.TakeTurnRequest",
        "trainer.rpc.answered.TakeTurnRequest",
    }


def test_the_source_has_points_of_all_kinds() -> None:
    kinds = {point.partition(".")[0] for point in points()}
    assert kinds == {"database", "event", "file", "folder", "journal", "line", "rpc", "step", "stream", "sync", "vote"}
