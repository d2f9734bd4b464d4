"""What every life imports, once: lives are forked from a server that has it."""

import transformers.models.qwen3.modeling_qwen3  # noqa: F401

import headrace.services.trainer.stages.rl
import headrace.wire.streams.memory  # noqa: F401
