"""Collects the pages of a trainer's registration, which may have more fates than one message takes."""

from headrace.wire.errors import TransientError
from headrace.wire.v1 import common_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb


class FatePages:
    """Pages of one registration at a time; they come in order."""

    def __init__(self) -> None:
        self._boot_id = ""
        self._next = 0
        self._fates: list[common_pb2.Fate] = []

    def take(self, request: pb.RegisterTrainerRequest) -> pb.RegisterTrainerRequest | None:
        """The registration with the fates of all its pages; None while pages are missing.

        A first page begins anew. Raises TransientError for a page whose predecessors are not here: this process was
        restarted meanwhile, and the trainer sends all of them again.
        """
        if request.pages <= 1:
            return request
        if request.page == 0:
            self._boot_id, self._next, self._fates = request.boot_id, 0, []
        if request.boot_id != self._boot_id or request.page != self._next:
            raise TransientError(f"page {request.page} of {request.pages} came without those before it; begin again")
        self._fates.extend(request.fates)
        self._next += 1
        if self._next < request.pages:
            return None
        whole = pb.RegisterTrainerRequest()
        whole.CopyFrom(request)
        del whole.fates[:]
        whole.fates.extend(self._fates)
        whole.page = whole.pages = 0
        self._boot_id, self._next, self._fates = "", 0, []
        return whole
