"""By which way weights come to a replica, and that the reason for a worse one is told."""

import pytest

from headrace.services.orchestrator.publication.routes import Route, choose_route
from headrace.wire.v1.common_pb2 import Routes

CUMEM = "with unequal NCCL_CUMEM_ENABLE two GPUs of a machine cannot exchange weights (trainer 0, replica 1)"
UNEQUAL = "unequal NCCL versions hang (trainer 2.29.7, replica 2.30.7)"


def gpu(uuid: str, nccl: str = "2.30.7", backends: tuple[str, ...] = ("nccl", "gloo"), cumem: str = "0") -> Routes:
    return Routes(backends=backends, ranks=1, nccl_version=nccl, nccl_cumem=cumem, devices=[uuid])


CPU = Routes(backends=["gloo"], ranks=1)


@pytest.mark.parametrize(
    ("trainer", "replica", "wanted"),
    [
        (gpu("GPU-a"), gpu("GPU-b"), Route("nccl")),
        (gpu("GPU-a", "2.29.7"), gpu("GPU-b"), Route("gloo", UNEQUAL)),
        (gpu("GPU-a", "2.29.7"), gpu("GPU-b", backends=("nccl",)), Route("disk", UNEQUAL)),
        (gpu("GPU-a"), gpu("GPU-b", ""), Route("gloo", "unequal NCCL versions hang (trainer 2.30.7, replica unknown)")),
        (gpu("GPU-a"), gpu("GPU-b", cumem="1"), Route("gloo", CUMEM)),
        (gpu("GPU-a"), gpu("GPU-a"), Route("gloo", "NCCL refuses two ranks on one device (GPU-a)")),
        (gpu("GPU-a"), CPU, Route("gloo", "the replica reports no NCCL, or no GPU")),
        (CPU, gpu("GPU-b"), Route("gloo")),
        (CPU, CPU, Route("gloo")),
        (CPU, Routes(), Route("disk", "trainer and replica have no collective backend in common")),
    ],
)
def test_nccl_then_gloo_then_the_disk(trainer: Routes, replica: Routes, wanted: Route) -> None:
    assert choose_route(trainer, replica) == wanted


def test_no_collective_is_tried_with_a_replica_that_is_distrusted() -> None:
    assert choose_route(gpu("GPU-a"), gpu("GPU-b"), distrust="it is quarantined") == Route("disk", "it is quarantined")
