"""A registration with more fates than one message takes: the trainer's pages are the orchestrator's one request."""

import pytest

from headrace.services.orchestrator.state.fate_pages import FatePages
from headrace.wire.errors import TransientError
from headrace.wire.v1 import common_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb


def page(number: int, count: int = 3, boot_id: str = "b") -> pb.RegisterTrainerRequest:
    fates = [common_pb2.Fate(group_index=number * 10 + index) for index in range(2)]
    return pb.RegisterTrainerRequest(boot_id=boot_id, version=7, fates=fates, page=number, pages=count)


def test_a_single_page_registration_is_used_directly() -> None:
    request = pb.RegisterTrainerRequest(boot_id="b", fates=[common_pb2.Fate(group_index=1)])
    assert FatePages().take(request) is request


def test_the_last_page_completes_a_registration() -> None:
    pages = FatePages()
    assert pages.take(page(0)) is None and pages.take(page(1)) is None
    whole = pages.take(page(2))
    assert whole is not None and whole.version == 7 and not whole.pages
    assert [fate.group_index for fate in whole.fates] == [0, 1, 10, 11, 20, 21]


@pytest.mark.parametrize("wrong", [page(1), page(2), page(1, boot_id="other")])
def test_a_page_out_of_order_is_rejected_until_the_first_arrives(
    wrong: pb.RegisterTrainerRequest,
) -> None:
    pages = FatePages()
    if wrong.page == 2 or wrong.boot_id != "b":
        pages.take(page(0))
    with pytest.raises(TransientError, match="begin again"):
        pages.take(wrong)
    assert [pages.take(page(number)) is None for number in range(3)] == [True, True, False]
