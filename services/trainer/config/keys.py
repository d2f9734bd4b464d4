"""The keys of `[algorithm]` and `[critic]`. Imports no torch."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from headrace.services.trainer.algorithms.composition import Composition
from headrace.services.trainer.algorithms.names import Aggregation, KlEstimator
from headrace.services.trainer.algorithms.parts import CorrectionTable, EveryOption, Need
from headrace.wire.config.settings import Table


class AlgorithmKeys(EveryOption, Composition, Table):
    """All keys of `[algorithm]`."""

    path: Path | None = None
    """Folder of your own functions, last on the import path. A run trains with the copy in its directory."""
    aggregation: Aggregation = "seq-mean-token-mean"
    """Reduction of token losses to one number; counts are those of the whole optimizer step."""
    norm_length: int = Field(0, ge=0)
    """Divisor of `seq-mean-token-sum-norm`; 0 = `rollout.sampling.max_tokens`."""
    anchor: Literal["behaviour", "proximal"] = "behaviour"
    """Denominator of ratios: the engine's logprobs (bypass: no extra forward pass), or the trainer's at batch time."""
    epochs: int = Field(1, ge=1)
    """Passes over a batch."""
    minibatches: int = Field(1, ge=1)
    """Optimizer steps an epoch; groups stay together."""
    entropy_coef: float = Field(0.0, ge=0)
    """Weight of the entropy bonus; with a target, the initial weight."""
    entropy_target: float = Field(0.0, ge=0)
    """Target in nats a token: the coefficient rises while the mean entropy is below it, and falls above; 0 = fixed."""
    entropy_step: float = Field(0.005, gt=0)
    """Change of the coefficient a step, with a target."""
    entropy_max: float = Field(0.1, gt=0)
    """Largest coefficient, with a target."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL to the reference; 0 loads no reference. With a target, the initial weight."""
    kl_estimator: KlEstimator = "k3"
    """Estimator per token; those with a plus have their own value and the unbiased gradient of k2."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Add the KL to the loss with a gradient, or subtract it from rewards before advantages are computed."""
    kl_target: float = Field(0.0, ge=0)
    """Target of the metric `kl`, in nats a token, to which `kl_coef` is adapted (arXiv 1909.08593); 0 = fixed."""
    kl_horizon: int = Field(10_000, ge=1)
    """Rollouts over which `kl_coef` is adapted."""
    kl_support: Literal["vocabulary", "kept"] = "vocabulary"
    """The ids that the KL compares policy and reference on: all, or with cut-off sampling those left to draw from."""
    kl_unbiased: bool = False
    """For `kl_in = "loss"`: multiply the KL by the ratio, which makes it unbiased for off-policy tokens."""
    reference: Literal["frozen", "adapters_off"] = "frozen"
    """A copy of the model at the start of the run, or the model with its adapters switched off.

    With LoRA both are the same model, and no copy is made.
    """
    reference_reset_every: int = Field(0, ge=0)
    """Steps after which the current policy becomes the frozen reference; 0 = never."""
    reference_mix: float = Field(1.0, gt=0, le=1)
    """How far the reference then moves to the policy; below 1, after every step, it is an exponential mean of policies.

    TR-DPO's alpha (arXiv 2404.09656; TRL's `ref_model_mixup_alpha`).
    """
    positive_nll_coef: float = Field(0.0, ge=0)
    """Weight of the likelihood of rollouts with a reward above 0 (VAPO: 0.1)."""
    ptx_coef: float = Field(0.0, ge=0)
    """Weight of next-token loss on `ptx_data` (PPO-ptx, arXiv 2203.02155)."""
    ptx_data: Path = Path()
    """Parquet file with `prompt_ids` and `completion_ids`, as the supervised stage reads."""
    ptx_rows: int = Field(16, ge=1)
    """Rows of that data in each optimizer step."""
    dynamic_sampling: bool = False
    """Drop groups whose scores are all equal, and sample others (DAPO)."""
    discard_limit: int = Field(10, ge=1)
    """Groups dropped for one batch, as a multiple of the batch, before the run ends with an error."""
    overlong_buffer: int = Field(0, ge=0)
    """Number of tokens before max_tokens over which a soft penalty grows (DAPO); 0 = off."""
    overlong_factor: float = Field(1.0, gt=0)
    """Penalty of a rollout with max_tokens."""
    mask_truncated: bool = False
    """Rollouts that were cut at max_tokens count for the baseline but are not trained (overlong filtering)."""
    max_token_age: int = Field(-1, ge=-1)
    """Tokens sampled by weights more versions old count for rewards but are not trained; -1 = off."""
    correction: CorrectionTable = CorrectionTable()

    @property
    def needs_critic(self) -> bool:
        """Whether advantages are taken against a value."""
        return Need.CRITIC in self.estimator.needs

    @property
    def needs_reference(self) -> bool:
        """Whether a reference model's logprobs are used."""
        return self.kl_coef > 0 or Need.REFERENCE in self.estimator.needs

    @property
    def greedy_last(self) -> int:
        """Greedy rollouts wanted beside each group."""
        return int(Need.GREEDY in self.estimator.needs)


class CriticTable(Table):
    """`[critic]`: the value model of algorithms whose advantage needs one."""

    enabled: bool = True
    """Set to false to refuse algorithms that need a critic."""
    path: Path = Path()
    """Folder of the initial model: a language model or a reward model; empty = `model.path`."""
    learning_rate: float = Field(1e-5, gt=0)
    """Constant after the warmup."""
    learning_rate_warmup: int = Field(0, ge=0)
    """Steps over which the learning rate rises."""
    weight_decay: float = Field(0.0, ge=0)
    """Applies to matrices only."""
    grad_clip: float = Field(1.0, ge=0)
    """Largest norm of the gradient; 0 = no clipping."""
    value_clip: float = Field(0.2, ge=0)
    """How far a value may move from what it was at batch time before its loss is clipped; 0 = plain squares.

    Of a critic of one output: quantiles have no clip.
    """
    huber_bound: float = Field(0.0, ge=0)
    """Error beyond which the loss is linear (Huber), in units of the return; 0 = squares. Quantiles: 0 = 1."""
    epochs: int = Field(1, ge=1)
    """Passes over a batch; `algorithm.minibatches` sets the optimizer steps of each."""
    pretrain_steps: int = Field(0, ge=0)
    """Initial steps that train only the critic, on Monte-Carlo returns (VAPO's value pretraining)."""
    warmup_steps: int = Field(0, ge=0)
    """Further steps that train only the critic, on the returns of the algorithm."""
    quantiles: int = Field(1, ge=1)
    """Number of quantiles of the return that the critic learns (arXiv 1710.10044); 1 = a single value."""
    spread_weight: float = Field(0.0, ge=0)
    """How strongly advantages shrink where the quantiles are far apart; 0 = off, needs `quantiles`."""
