"""What every life imports, once."""

import transformers.models.qwen3.modeling_qwen3  # noqa: F401
