"""Settings of the stages that train on given examples: `[sft]`, `[reward_model]`, `[dpo]`. Imports no torch."""

from typing import Literal

from pydantic import Field, model_validator

from headrace.services.trainer.algorithms.names import PreferenceKind
from headrace.services.trainer.config.trackers import TrackersTable
from headrace.services.trainer.settings import ProcessKeys, UpdateKeys
from headrace.wire.config.settings import ServiceSettings, Table

STAGES = ("sft", "reward_model", "dpo")
RUN_KEYS = ("id", "stage", "seed", "device", "threads")
"""Keys of `[run]` that these stages use."""


class StageTable(UpdateKeys):
    """What these stages share. Backend, checkpoints and `resume` are those of `[trainer]`."""

    epochs: float = Field(1.0, gt=0)
    """Passes over all examples; each has its own order."""
    steps: int = Field(0, ge=0)
    """Number of optimizer steps; 0 = derived from `epochs`."""
    batch_size: int = Field(64, ge=1)
    """Examples (or pairs) for each optimizer step."""
    max_tokens: int = Field(0, ge=0)
    """Longest example, including its prompt; 0 = the model's context. `data.overlong` selects the handling of longer
    ones."""
    learning_rate: float = Field(1e-5, gt=0)
    """Peak of the schedule."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's decay rates of the first and the second moment."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """After the warmup; linear and cosine reach 0 at the last step."""
    eval_every: int = Field(0, ge=0)
    """Steps between two evaluations of the held-out examples; 0 = only at the start and at the end."""


class SftTable(StageTable):
    """`[sft]`: next-token loss on completions, or on every assistant turn of a conversation."""

    learning_rate: float = Field(1e-4, gt=0)
    """Peak of the schedule."""
    pack_tokens: int = Field(0, ge=0)
    """Pack examples into rows of this many tokens; a model that attends across examples is refused; 0 = one row
    each."""
    target_loss: float = Field(0.0, ge=0)
    """Stop once the loss, averaged over eight steps, is at most this; 0 = train all steps."""
    logprob_chunk: int = Field(0, ge=0)
    """Tokens whose logits over the vocabulary are in memory at the same time; 0 = 256 on a CPU, 2048 on a GPU."""


class RewardModelTable(StageTable):
    """`[reward_model]`: a scalar head on the model, by the Bradley-Terry loss on ranked pairs."""

    centering: float = Field(0.0, ge=0)
    """Weight of the squared sum of a pair's two scores, which keeps scores around 0 (0.01 is usual); 0 = off."""


class DpoTable(StageTable):
    """`[dpo]`: the policy itself on ranked pairs, by direct preference optimization and its kin."""

    loss: PreferenceKind = "dpo"
    """Loss of each pair; `cdpo` and `robust` assume a share of wrong labels, `ipo` averages logprobs by length."""
    beta: float = Field(0.1, gt=0)
    """Strength of the pull to the reference; for `ipo` the margin is 1 / (2 beta)."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """For `cdpo` and `robust`: the assumed share of wrongly ranked pairs."""
    learning_rate: float = Field(1e-6, gt=0)
    """Peak of the schedule."""
    logprob_chunk: int = Field(0, ge=0)
    """Tokens whose logits over the vocabulary are in memory at the same time; 0 = 256 on a CPU, 2048 on a GPU."""

    @model_validator(mode="after")
    def _smoothing_belongs_to_the_loss(self) -> "DpoTable":
        smoothed = self.loss in ("cdpo", "robust")
        if smoothed and self.label_smoothing == 0:
            raise ValueError(f'loss = "{self.loss}" needs a label_smoothing above 0; without it, it is "dpo"')
        if not smoothed and self.label_smoothing > 0:
            raise ValueError(f'label_smoothing belongs to loss = "cdpo" or "robust", not to "{self.loss}"')
        return self


class StageSettings(ServiceSettings):
    """All settings of a stage on given examples, which `run.stage` names. Of `[run]` it uses `RUN_KEYS`.

    The examples are `run_dir/examples.parquet`, the held-out ones `run_dir/eval_examples.parquet` (it may be absent).
    """

    node: int = Field(0, ge=0)
    """Which of `trainer.nodes` machines this is."""
    trainer: ProcessKeys = ProcessKeys()
    trackers: TrackersTable = TrackersTable()
    sft: SftTable = SftTable()
    reward_model: RewardModelTable = RewardModelTable()
    dpo: DpoTable = DpoTable()

    @property
    def table(self) -> StageTable:
        """The table of the stage named by `run.stage`."""
        return stage_table(self, self.run.stage)


def stage_table(tables: Table, stage: str) -> StageTable:
    """The table of a stage on given examples, among all tables. Raises AttributeError for the RL stage."""
    found: StageTable = getattr(tables, stage)
    return found
