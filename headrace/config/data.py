"""`[data]`: where the prompts are and how they become token ids."""

from typing import Literal

from pydantic import Field

from headrace.wire.settings import Table


class DataTable(Table):
    """`[data]`: the prompts, and what of a row the reward gets to see."""

    path: str
    """A `.jsonl`, `.json` or `.parquet` file, or the id of a `datasets` dataset."""
    subset: str = ""
    """Name of the dataset's configuration; only for a `datasets` id."""
    split: str = "train"
    """Split of the dataset; only for a `datasets` id."""
    preset: Literal["plain", "trl", "verl", "openrlhf", "messages"] = "plain"
    """Whose column names and shapes the rows have."""
    columns: dict[str, str] = Field(default_factory=dict)
    """What is where: `prompt`, `answer`, `id` and any further reward column; `a.b` looks inside a nested value."""
    eval_path: str = ""
    """Held-out prompts in a file of their own."""
    eval_split: str = ""
    """Held-out prompts in a split of the same dataset."""
    eval_size: int = Field(0, ge=0)
    """So many prompts are held out of `path`, chosen by `run.seed`; 0 = none."""
    limit: int = Field(0, ge=0)
    """Only the first rows of `path`; 0 = all."""
    max_prompt_tokens: int = Field(0, ge=0)
    """Longest prompt; 0 = the model's context less `rollout.sampling.max_tokens`."""
    overlong: Literal["error", "drop"] = "error"
    """What happens to a longer prompt."""
    max_unknown_share: float = Field(0.05, ge=0, le=1)
    """Largest share of tokens, of all prompts or examples together, that stand for text the tokenizer does not know."""
    chat_template: Literal["auto", "always", "never"] = "auto"
    """`auto`: messages always, text if the tokenizer has a template (never with preset `trl`)."""
    system: str = ""
    """A system message put before each prompt; needs a chat template."""
