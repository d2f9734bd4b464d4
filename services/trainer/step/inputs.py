"""What a step works on: models, batch, the values that do not change from step to step, and those that do."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from headrace.services.trainer.algorithms.algorithm import Algorithm
from headrace.services.trainer.algorithms.logprobs import TokenScores
from headrace.services.trainer.algorithms.parts import Need
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.config.keys import CriticTable
from headrace.services.trainer.durability.staleness import UNBOUNDED
from headrace.services.trainer.step.batch import StepBatch, TrainRollout
from headrace.services.trainer.step.reductions import Sums
from headrace.services.trainer.timing.phases import Timed


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModels:
    """The models that take part in a step; each on all ranks."""

    policy: Backend
    critic: Backend | None = None
    reference: Callable[..., TokenScores] | None = None
    """Like a policy's forward pass; without gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConfig:
    """The values of a step that do not change from step to step."""

    algorithm: Algorithm
    table: AlgorithmTable
    micro_batch_tokens: int
    logprob_chunk: int
    grad_clip: float
    critic: CriticTable = field(default_factory=CriticTable)
    ptx: tuple[TrainRollout, ...] = ()
    """Examples of the pretraining term."""
    most_lag: int = UNBOUNDED
    """Tokens of a higher lag are in no loss, KL, entropy or length; their rollouts' rewards count whole."""

    @property
    def updates(self) -> int:
        """Optimizer steps of the policy for one batch."""
        return self.table.epochs * self.table.minibatches

    @property
    def sweeps_old(self) -> bool:
        """Whether the policy's logprobs at batch time need a pass of their own.

        With one update they are those of the update itself.
        """
        table = self.table
        if table.anchor != "proximal":
            return False
        early = Need.OLD_LOGPROBS in table.estimator.needs or (table.kl_in == "reward" and table.kl_coef > 0)
        # The ratio of its line search is to the weights before the step.
        early = early or table.policy_loss == "trpo"
        return self.updates > 1 or early


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The values that change from step to step."""

    policy: float
    """Learning rate; 0 with `policy_frozen`."""
    critic: float = 0.0
    kl_coef: float = 0.0
    entropy_coef: float = 0.0
    policy_frozen: bool = False
    """Only the critic is trained."""
    pretraining: bool = False
    """The critic learns Monte-Carlo returns."""
    seed: int = 0
    """Seed of the step's draws: all ranks and a replay must draw the same, for any other use of torch's generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What travels together through one step."""

    models: StepModels
    batch: StepBatch
    config: StepConfig
    rates: Rates
    draw: torch.Generator
    """Makes the step's draws."""
    check: Callable[[], None]
    """Called before each micro-batch; raises if the step is to be given up."""
    phases: Timed
    sums: Sums = field(default_factory=Sums)
