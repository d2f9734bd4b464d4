"""A stage whose environment is a taskset of `verifiers`, with a model of the family Qwen3."""

from pathlib import Path
from typing import Any

from headrace.services.environment.taskset.frames import TasksetConfig
from headrace.wire.v1 import rollout_pb2 as pb
from tests.integration.environment.stage import stage
from tests.unit.services.environment.rendering.qwen3 import QWEN3, model_folder

TASKSETS = Path(__file__).parent / "tasksets"
TASK = {"prompt": "What is 12 + 34?", "answer": 46}
CALL = '<tool_call>\n{"name": "calc_add", "arguments": {"a": 12, "b": 34}}\n</tool_call>'


def adds(text: str, request: pb.SampleRequest) -> str:
    return "46" if "<tool_response>" in text else CALL


def taskset_stage(
    folder: Path,
    says: Any = adds,
    *,
    name: str = "calc",
    harness: str = "null",
    renderer: str = "qwen3",
    **more: Any,
) -> Any:
    taskset = TasksetConfig(
        taskset=name,
        options={},
        harness=harness,
        max_turns=4,
        context_length=4000,
    )
    return stage(
        folder,
        says,
        template=QWEN3,
        model=model_folder,
        renderer=renderer,
        slots=1,
        taskset=taskset,
        **{"path": TASKSETS, **more},
    )
