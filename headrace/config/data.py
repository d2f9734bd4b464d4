"""`[data]`: where the prompts are and how they become token ids."""

from typing import Literal

from pydantic import Field, model_validator

from headrace.wire.config.settings import Table


class DataTable(Table):
    """`[data]`: the prompts, and what of a row the reward gets to see."""

    path: str = ""
    """A `.jsonl`, `.json`, `.csv`, `.tsv` or `.parquet` file, or the id of a `datasets` dataset."""
    environment: str = ""
    """In place of `path`: a taskset of the package verifiers, the name of an installed one or a folder. Its tasks are
    the rows, and episodes of it are played: `environment.name` is set by it."""
    subset: str = ""
    """Name of the dataset's configuration; only for a `datasets` id."""
    split: str = "train"
    """Split of the dataset; only for a `datasets` id."""
    preset: Literal["plain", "trl", "verl", "openrlhf", "messages"] = "plain"
    """The library whose column names and layouts the rows have."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Names of the columns for `prompt`, `answer`, `id`, `tools` and any further reward column; `a.b` reads a nested
    value, and an empty name leaves the column out."""
    eval_path: str = ""
    """A separate file of held-out prompts."""
    eval_split: str = ""
    """Held-out prompts in a split of the same dataset."""
    eval_size: int = Field(0, ge=0)
    """Number of prompts held out of `path`, chosen by `run.seed`; 0 = none."""
    limit: int = Field(0, ge=0)
    """Use only this many rows, from the start of `path`; 0 = all."""
    max_prompt_tokens: int = Field(0, ge=0)
    """Longest prompt; 0 = the model's context minus `rollout.sampling.max_tokens`."""
    overlong: Literal["error", "drop"] = "error"
    """Reject the data with an error, or drop the prompt, if a prompt is longer."""
    max_unknown_share: float = Field(0.05, ge=0, le=1)
    """Largest share of unknown tokens, over all prompts or examples together."""
    chat_template: Literal["auto", "always", "never"] = "auto"
    """`auto`: messages always, text if the tokenizer has a template (never with preset `trl`)."""
    system: str = ""
    """System message placed before each prompt; needs a chat template."""

    @model_validator(mode="after")
    def _has_rows(self) -> "DataTable":
        if self.path and self.environment:
            raise ValueError(
                "environment brings its own rows: leave path out, or name what is played in environment.name"
            )
        if not (self.path or self.environment):
            raise ValueError('lacks the key "path"')
        return self
