"""All models of the RL stage on this rank, and the operations on them. Every rank calls the same methods in order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.controllers import adapted_entropy_coef, adapted_kl_coef
from headrace.services.trainer.algorithms.logprobs import TokenScores
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.backends.frozen import Frozen
from headrace.services.trainer.discriminator.discriminator import DiscriminatorTrainer
from headrace.services.trainer.durability.checkpoint import Checkpoint
from headrace.services.trainer.durability.host_copy import Files, HostCopy
from headrace.services.trainer.durability.random_states import random_states, restore_random_states
from headrace.services.trainer.export.model_folder import export_model
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.publication.outgoing import weight_groups
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.step.batch import assemble, kept_metrics
from headrace.services.trainer.step.inputs import Rates, StepConfig, StepModels
from headrace.services.trainer.step.schedule import learning_rate, step_seed
from headrace.services.trainer.step.step import StepOutcome, train_step
from headrace.services.trainer.throughput.memory import MemoryPeaks
from headrace.services.trainer.timing.phases import Timed, untimed
from headrace.wire.contracts import ScoredGroup
from headrace.wire.errors import ConfigError, ContractError
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.streams.columns import LostColumnError, with_kept
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.weights import join_groups

_DISCRIMINATOR_VERSION = "discriminator_version"
log = get_logger("trainer.learner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A copy of what this rank writes of a checkpoint."""

    copied: Future[Files]
    """By file name, in host memory; valid until the next call."""
    coefficients: dict[str, float]

    @property
    def files(self) -> Files:
        """The tensors, once they are copied."""
        return self.copied.result()


class Learner:
    """Policy, critic, reference and discriminator of this rank."""

    def __init__(
        self,
        settings: TrainerSettings,
        config: StepConfig,
        policy: Backend,
        *,
        critic: Backend | None,
        reference: Frozen | None,
        discriminator: DiscriminatorTrainer | None = None,
    ) -> None:
        """`reference` is None if there is none, or if it is the policy with its adapters off."""
        self._settings = settings
        self._config = config
        self.policy = policy
        self._critic = critic
        self._frozen = reference
        self._discriminator = discriminator
        self._reference_moved = False
        self._copy = HostCopy(policy.device)
        for backend in self._trained():
            backend.before_change = self._copy.settle
        # Created after loading, whose memory peak belongs to no step.
        self._memory = MemoryPeaks(policy.device)
        scorer = self._score_frozen if settings.algorithm.needs_reference else None
        self._models = StepModels(policy=policy, critic=critic, reference=scorer)
        table = settings.algorithm
        self.coefficients = {"kl_coef": table.kl_coef, "entropy_coef": table.entropy_coef}
        """Adapted towards their targets; part of a checkpoint."""

    @property
    def run_dir(self) -> Path:
        """The run directory as this machine sees it."""
        return self._settings.run_dir

    def train(
        self,
        step: int,
        groups: Sequence[ScoredGroup],
        interrupted: Callable[[], bool] = lambda: False,
        *,
        phases: Timed = untimed,
    ) -> StepOutcome:
        """Trains one batch. Raises StepInterruptedError, and then nothing has changed.

        The discriminator's examples are read before the policy is updated, so that an error in them shows first.
        """
        seed = step_seed(self._settings.run.seed, step)
        torch.manual_seed(seed)
        batch = assemble(self._with_kept(step, groups), version=step - 1)
        examples = None
        if self._discriminator is not None:
            with phases("discriminator"):
                examples = self._discriminator.examples(step, groups)
        rates = self._rates(step, seed)
        outcome = train_step(
            self._models, batch, self._config, rates, interrupted=interrupted, phases=phases, peaks=self._memory.take
        )
        outcome.metrics.update(self.coefficients | kept_metrics(batch))
        self._adapt(outcome, rollouts=len(batch.rollouts))
        if self._discriminator is not None and examples is not None:
            with phases("discriminator"):
                outcome.metrics.update(self._discriminator.train(step, examples))
        table = self._settings.algorithm
        every = table.reference_reset_every
        if self._frozen is not None and every and step % every == 0:
            with phases("reference"):
                self._copy.settle()
                self._frozen.load(dict(self.policy.whole_weights()), share=table.reference_mix)
            self._reference_moved = True
            log.info("reference_reset", step=step, share=table.reference_mix)
        return outcome

    def _with_kept(self, step: int, groups: Sequence[ScoredGroup]) -> list[ScoredGroup]:
        """The groups with their kept ids, read here where the inbox has not: after a restart, and on ranks above 0.

        Raises LostColumnError.
        """
        try:
            return [with_kept(self._settings.ids_dir, scored) for scored in groups]
        except ContractError as error:
            raise LostColumnError(f"step {step}: {error.message}: restore the file, or begin a new run") from error

    def join_hold(self, canary: Callable[[Backend], object]) -> None:
        """Takes part, on ranks above 0, in a snapshot."""
        canary(self.policy)
        dtype = getattr(torch, self._settings.model.dtype)
        bucket_bytes = self._settings.trainer.bucket_mib * 1024 * 1024
        join_groups(weight_groups(self.policy, dtype), bucket_bytes=bucket_bytes)

    def publish_discriminator(self) -> None:
        """Publishes the discriminator's version for the scorers, unless this life already has or there is none."""
        if self._discriminator is not None:
            folder = RunPaths(self._settings.run_dir).discriminator
            dtype = getattr(torch, self._settings.model.dtype)
            self._discriminator.publish(folder, self._settings.model.path, dtype=dtype)

    def save(self) -> Saved:
        """Begins to copy what this rank writes of a checkpoint into host memory."""
        files = state_of("model", "optimizer", self.policy)
        if self._critic is not None:
            files |= state_of("critic", "critic-optimizer", self._critic)
        if self._frozen is not None and self._reference_moved:
            files["reference"] = self._frozen.weight_rows(self.policy.ranks.rank)
        coefficients = dict(self.coefficients)
        if self._discriminator is not None:
            files |= state_of("discriminator", "discriminator-optimizer", self._discriminator.backend)
            coefficients[_DISCRIMINATOR_VERSION] = float(self._discriminator.version)
        if self.policy.ranks.rank == 0:
            files["random"] = iter(random_states().items())
        stays = all(backend.rows_stay for backend in self._trained())
        return Saved(copied=self._copy.take(files, beside=stays), coefficients=coefficients)

    def park(self) -> None:
        """Frees for the engines the memory that is not needed until the next step: see `Backend.park`."""
        size = sum(backend.park() for backend in self._trained())
        if self.policy.device.type == "cuda":
            torch.cuda.empty_cache()
        log.debug("parked", rank=self.policy.ranks.rank, bytes=size)
        # Rank 0 releases all GPUs at once.
        self.policy.ranks.barrier()

    def unpark(self) -> None:
        """Takes that memory back."""
        for backend in self._trained():
            backend.unpark()

    def _trained(self) -> list[Backend]:
        discriminator = self._discriminator.backend if self._discriminator is not None else None
        return [backend for backend in (self.policy, self._critic, discriminator) if backend is not None]

    def load(self, checkpoint: Checkpoint) -> None:
        """Restores models, optimizers, coefficients and random states.

        Raises ConfigError if the checkpoint is another model's.
        """
        step = checkpoint.state.step
        try:
            self.policy.load(checkpoint.weights, checkpoint.optimizer)
            if self._critic is not None:
                weights = _part(checkpoint.others, "critic", step)
                self._critic.load(weights, _part(checkpoint.others, "critic-optimizer", step))
            if self._frozen is not None and "reference" in checkpoint.others:
                self._frozen.load(checkpoint.others["reference"])
                self._reference_moved = True
            if self._discriminator is not None:
                self._discriminator.load(
                    _part(checkpoint.others, "discriminator", step),
                    _part(checkpoint.others, "discriminator-optimizer", step),
                    version=int(checkpoint.state.coefficients.get(_DISCRIMINATOR_VERSION, 0)),
                )
        except ValueError as error:
            raise ConfigError(f"the checkpoint of step {step} is of another model: {error}") from error
        table = self._settings.algorithm
        adaptive = {"kl_coef": table.kl_target > 0, "entropy_coef": table.entropy_target > 0}
        saved = checkpoint.state.coefficients
        # A fixed coefficient takes its value from the current config.
        self.coefficients |= {name: saved[name] for name, follows in adaptive.items() if follows and name in saved}
        restore_random_states(checkpoint.random_states)
        self.policy.ranks.barrier()

    def export(self, target: Path) -> str:
        """Writes the trained model as a Hugging Face folder (rank 0); returns its `weights_sha256`.

        Raises ConfigError if the tokenizer has changed since the run's first start.
        """
        dtype = getattr(torch, self._settings.model.dtype)
        settings = self._settings
        return export_model(self.policy, settings.model.path, target, dtype=dtype, run_dir=settings.run_dir)

    def _rates(self, step: int, seed: int) -> Rates:
        table, critic = self._settings.trainer, self._settings.critic
        held = critic.pretrain_steps + critic.warmup_steps if self._critic is not None else 0
        frozen = step <= held
        # The schedule begins with the first step that trains the policy: a warmup before it would have no effect.
        rate = learning_rate(
            max(step - held, 1),
            peak=table.learning_rate,
            warmup_steps=table.warmup_steps,
            max_steps=max(self._settings.run.max_steps - held, 1),
            schedule=table.schedule,
        )
        return Rates(
            policy=0.0 if frozen else rate,
            critic=critic.learning_rate * min(1.0, step / max(critic.learning_rate_warmup, 1)),
            kl_coef=self.coefficients["kl_coef"],
            entropy_coef=self.coefficients["entropy_coef"],
            policy_frozen=frozen,
            pretraining=frozen and step <= critic.pretrain_steps,
            seed=seed,
        )

    def _adapt(self, outcome: StepOutcome, *, rollouts: int) -> None:
        table, found = self._settings.algorithm, outcome.metrics
        if table.kl_target and "kl" in found:
            self.coefficients["kl_coef"] = adapted_kl_coef(
                self.coefficients["kl_coef"],
                kl=found["kl"],
                target=table.kl_target,
                horizon=table.kl_horizon,
                rollouts=rollouts,
            )
        if table.entropy_target and "entropy" in found:
            self.coefficients["entropy_coef"] = adapted_entropy_coef(
                self.coefficients["entropy_coef"],
                entropy=found["entropy"],
                target=table.entropy_target,
                step=table.entropy_step,
                high=table.entropy_max,
            )

    def _score_frozen(self, *inputs: object) -> TokenScores:
        module = self.policy.module
        assert isinstance(module, Policy)
        with torch.no_grad(), module.adapters_off() if self._frozen is None else nullcontext():
            scores = (self._frozen or self.policy)(*inputs)
        assert isinstance(scores, TokenScores)
        return scores


def state_of(model: str, optimizer: str, backend: Backend) -> dict[str, Iterator[tuple[str, Tensor]]]:
    """What this rank writes of a model that is trained; every rank must consume it."""
    return {model: backend.weight_rows(), optimizer: backend.optimizer_rows()}


def _part(others: Mapping[str, dict[str, Tensor]], name: str, step: int) -> dict[str, Tensor]:
    if name not in others:
        model = name.partition("-")[0]
        raise ConfigError(
            f"the checkpoint of step {step} has no {name}: the run began without a {model}; begin a new run, or "
            f"continue without one (an algorithm that needs no critic, discriminator.every = 0)"
        )
    return others[name]
