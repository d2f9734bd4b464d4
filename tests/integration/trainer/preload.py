"""What every life imports, once: lives are forked from a server that has it."""

import transformers.models.qwen3.modeling_qwen3  # noqa: F401

import tests.memory_broker  # noqa: F401
