"""One life of a stage on given examples: resume, steps, evaluations, checkpoints, export."""

import contextlib
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import torch

from headrace.services.trainer import metrics
from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.stop import StopSignal
from headrace.services.trainer.durability.checkpoint import Checkpoint, CheckpointState, CheckpointStore
from headrace.services.trainer.durability.checkpointing import CheckpointWriter, receipt_of, show_room
from headrace.services.trainer.durability.host_copy import Files, HostCopy
from headrace.services.trainer.durability.random_states import random_states, restore_random_states
from headrace.services.trainer.export.model_folder import export_model
from headrace.services.trainer.learner.learner import state_of
from headrace.services.trainer.runtime.health_server import HealthServer
from headrace.services.trainer.stages.offline.parts import STAGES, Job, load_stage_backend, read_sets, stage_digest
from headrace.services.trainer.stages.offline.step import OfflineStep, Plan
from headrace.services.trainer.step.schedule import learning_rate
from headrace.services.trainer.throughput.hardware import read_hardware
from headrace.services.trainer.throughput.memory import MemoryPeaks
from headrace.services.trainer.throughput.speed import step_speed
from headrace.services.trainer.trackers import make_trackers
from headrace.wire.errors import ConfigError
from headrace.wire.process import failpoints
from headrace.wire.rundir import atomic
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.file_digests import config_digests, sha256_of_files
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import MetricsLog
from headrace.wire.telemetry.logs import get_logger

_SMOOTH = 8
"""Steps over which the loss is averaged for the comparison with `sft.target_loss`."""
_LOG_EVERY = 20
E = TypeVar("E")
log = get_logger("trainer.stage")


class OfflineRun:
    """Runs the stage named by `run.stage` on one rank; only rank 0 writes files."""

    def __init__(
        self,
        settings: StageSettings,
        ranks: Ranks,
        device: torch.device,
        stop: StopSignal,
        health: HealthServer | None = None,
    ) -> None:
        """`device`: this rank's. `health`: the running health server, on the first process of each machine."""
        self._settings, self._ranks, self._device, self._stop = settings, ranks, device, stop
        self._health, self._leads = health, ranks.rank == 0
        self._store = CheckpointStore(RunPaths(settings.run_dir).checkpoints, keep=settings.trainer.keep_checkpoints)
        self._copy = HostCopy(device)
        self._digest = stage_digest(settings)
        self._recent: deque[float] = deque(maxlen=_SMOOTH)
        self._step = 0
        """The last step."""
        self._events: EventLog | None = None
        """None on other ranks than 0, and before the restore."""

    def run(self) -> bool:
        """Runs to the last step, or (False) to the stop signal. Raises DataError, ConfigError."""
        settings = self._settings
        trackers = make_trackers(settings, settings.trackers) if self._leads else None
        if trackers:
            trackers.start()
        try:
            sets = read_sets(settings)
            self._backend = load_stage_backend(settings, self._ranks, self._device)
            self._backend.before_change = self._copy.settle
            if self._health:
                self._health.doing = ""
            # Before a checkpoint is loaded: the reference is the model as the stage begins with it.
            job = STAGES[settings.run.stage].job(settings, self._backend, *sets)
            self._restore()
            if self._leads:
                self._events = EventLog(settings.run_dir, "trainer", settings.run.stage)
                self._events.append("stage_began", step=self._step, config=config_digests(settings.run_dir))
            self._checkpoints = CheckpointWriter(
                self._store,
                self._ranks,
                settings.trainer,
                self._copy_state,
                self._events,
                version=self._step,
                before_it_shows=self._sync_lines,
            )
            finished = self._train(job)
            if finished:
                self._finish()
            else:
                self._checkpoint()
                self._checkpoints.wait()
                log.info("stopped", step=self._step)
        finally:
            receipt = ""
            if self._events:
                receipt = receipt_of(settings.run_dir, self._step)
                self._events.close()
            if trackers:
                trackers.finish(hurry=self._stop.asked(), step=self._step, receipt=receipt)
        return finished

    def _sync_lines(self) -> None:
        """Before a checkpoint shows: the steps that it covers are not trained, so not recorded again."""
        paths = RunPaths(self._settings.run_dir)
        for path in (paths.metrics, paths.evals):
            with contextlib.suppress(FileNotFoundError):
                atomic.sync(path)

    def _restore(self) -> None:
        if not self._settings.trainer.resume and self._store.published():
            raise ConfigError(f"{self._settings.run_dir} holds a run already: resume it, or choose another run_dir")
        checkpoint = self._store.newest()
        if checkpoint is not None:
            self._load(checkpoint)
            self._step = checkpoint.state.step
            self._recent.extend(value for _, value in sorted(checkpoint.state.coefficients.items()))
            show_room(self._store)
            log.info("restored", step=self._step)

    def _load(self, checkpoint: Checkpoint) -> None:
        step = checkpoint.state.step
        try:
            self._backend.load(checkpoint.weights, checkpoint.optimizer)
        except ValueError as error:
            raise ConfigError(f"the checkpoint of step {step} is of another model: {error}") from error
        restore_random_states(checkpoint.random_states)
        if checkpoint.state.config_digest != self._digest:
            log.warning("config_changed", step=step, effect="the same seed need not give the same weights")

    def _train(self, job: Job[E]) -> bool:
        """Trains; returns whether the stage is complete, False if it was asked to stop."""
        settings, table = self._settings, self._settings.table
        plan = Plan(table, len(job.train), settings.run.seed)
        memory = MemoryPeaks(self._device)
        step = OfflineStep(self._backend, job.objective, micro_batch_tokens=table.micro_batch_tokens, peaks=memory.take)
        hardware = read_hardware(self._device, self._ranks.size, peak_tflops=settings.trainer.peak_tflops)
        numbers = MetricsLog(RunPaths(settings.run_dir).metrics) if self._leads else None
        looks = MetricsLog(RunPaths(settings.run_dir).evals) if self._leads else None
        if self._step == 0:
            self._look(step, job, looks)
        while self._step < plan.steps and not self._reached():
            if self._ranks.agree(self._stop.asked()):
                return False
            begin = time.monotonic()
            number = self._step + 1
            rows = plan.rows(number)
            rate = learning_rate(
                number,
                peak=table.learning_rate,
                warmup_steps=table.warmup_steps,
                max_steps=plan.steps,
                schedule=table.schedule,
            )
            found = step.train([job.train[row] for row in rows], learning_rate=rate, grad_clip=table.grad_clip)
            self._step = number
            self._recent.append(found["loss"])
            failpoints.reach("step.after_step")
            seconds = time.monotonic() - begin
            if numbers:
                extra = {"examples": len(rows), "epoch": plan.epoch(number), "seconds": seconds}
                line = found | extra
                self._record(numbers, line | step_speed(line, hardware), last=number == plan.steps)
            last = number == plan.steps or self._reached()
            if last or (table.eval_every and number % table.eval_every == 0):
                self._look(step, job, looks)
            self._checkpoints.check()
            if self._is_due() and not last:
                self._checkpoint()
        return True

    def _reached(self) -> bool:
        """Whether the loss has reached the target; the same on every rank."""
        target = self._settings.sft.target_loss if self._settings.run.stage == "sft" else 0.0
        return target > 0 and len(self._recent) > 0 and sum(self._recent) / len(self._recent) <= target

    def _record(self, numbers: MetricsLog, found: Mapping[str, float], *, last: bool) -> None:
        numbers.append(self._step, {"t": round(time.time(), 3), **found})
        metrics.STEPS.inc()
        metrics.STEP_SECONDS.labels("train").observe(found["seconds"])
        metrics.show_step(found)
        metrics.POLICY_VERSION.set(self._step)
        if found["skipped"]:
            metrics.STEPS_SKIPPED.inc()
            log.error("step_skipped", step=self._step, reason="the gradient was not finite")
        if last or self._step % _LOG_EVERY == 0:
            log.info("step", step=self._step, loss=found["loss"], seconds=round(found["seconds"], 3))

    def _look(self, step: OfflineStep[E], job: Job[E], looks: MetricsLog | None) -> None:
        """Evaluates the held-out examples; a repeated evaluation is recorded once."""
        if not job.held_out:
            return
        found = step.evaluate(job.held_out)
        if looks:
            row = {"t": round(time.time(), 3), "version": self._step, "examples": len(job.held_out)}
            looks.append(self._step, row | found)
            log.info("evaluated", step=self._step, **{key: round(value, 5) for key, value in found.items()})

    def _is_due(self) -> bool:
        """Whether to take a checkpoint after this step; the same on every rank: by time, rank 0's."""
        due = self._checkpoints.is_due(self._step)
        return due if self._settings.trainer.checkpoint_steps else self._ranks.agree(self._leads and due)

    def _checkpoint(self) -> None:
        """Copies the state, which is written in the background; first waits for the one that is being written."""
        if self._step:
            self._checkpoints.save(self._step, partial(receipt_of, self._settings.run_dir, self._step))

    def _copy_state(self, step: int) -> tuple[CheckpointState, Future[Files]]:
        if self._leads:
            self._store.prepare(step)
        # Then the folder is there for all ranks.
        self._ranks.barrier()
        states = state_of("model", "optimizer", self._backend)
        random = {"random": iter(random_states().items())} if self._leads else {}
        return CheckpointState(
            step=step,
            incarnation=0,
            frontier=0,
            fates=(),
            coefficients={f"loss-{number}": value for number, value in enumerate(self._recent)},
            config_digest=self._digest,
        ), self._copy.take(states | random, beside=self._backend.rows_stay)

    def _finish(self) -> None:
        """Writes the last checkpoint and exports the model."""
        self._checkpoint()
        settings = self._settings
        target = RunPaths(settings.run_dir).export
        dtype = getattr(torch, settings.model.dtype)
        source, run_dir = settings.model.path, settings.run_dir
        digest = export_model(self._backend, source, target, dtype=dtype, run_dir=run_dir)
        self._checkpoints.wait()
        if self._events:
            files = sha256_of_files(target)
            self._events.append("exported", path=str(target), weights_sha256=digest, step=self._step, files=files)
            log.info("finished", step=self._step, path=str(target), weights_sha256=digest)
