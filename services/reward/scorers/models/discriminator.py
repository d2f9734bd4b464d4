"""The discriminator as a scorer: how much a completion looks like a reference, to a classifier that the trainer trains.

The trainer publishes each version whole under `RUN/discriminator` and then names it in the file `current`. That file is
looked at with every group: at `max_staleness = 0` a group is so always scored by the version of its own step, whatever
crashes. A new version is loaded beside the old one and takes its place in one step.
"""

import asyncio
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from headrace.services.reward.scorer import Context, Sample, Scorer, ScorerDownError, Verdict
from headrace.services.reward.scorers.models.classifier import Classifier
from headrace.services.reward.scorers.models.loaded_model import DIGEST_LENGTH, import_libraries
from headrace.services.reward.scorers.models.reward_model import RANGE, ModelOptions, ModelSequences
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.telemetry.logs import get_logger

_CURRENT = "current"
_NAMED = re.compile(r"version-\d{6,} [0-9a-f]{64}")
_TRIES = 3
_FLOOR = 1e-6
"""Smallest probability in the form `log`: otherwise one sample near 0 would outweigh all others."""
log = get_logger("reward.discriminator")


class _GoneError(TransientError):
    """A version was removed while it was loaded: a newer one has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """One version, ready to score."""

    name: str
    """Content of `current` that names it."""
    version: str
    sequences: ModelSequences


class DiscriminatorOptions(ModelOptions):
    """Options of `discriminator`."""

    path: Path = Path()
    """Folder of the versions; empty = the run's."""
    form: Literal["probability", "log", "logit"] = "probability"
    """Form of the score: sigmoid(logit) in 0 to 1, its logarithm, or the logit (GAIL's choices, arXiv 1606.03476)."""
    load_s: float = Field(600.0, gt=0)
    """How long loading a version may take."""


class DiscriminatorScorer(Scorer):
    """Follows the trainer's versions."""

    Options = DiscriminatorOptions

    def __init__(self, options: DiscriminatorOptions, context: Context) -> None:
        """Raises ConfigError outside of a run, unless a path is given."""
        if not options.path.parts and context.run_dir is None:
            raise ConfigError(
                f"{context.component}: outside of a run it needs options.path, the folder `discriminator` of one"
            )
        self._options, self._context = options, context
        self._folder = options.path if options.path.parts else RunPaths(Path(context.run_dir or "")).discriminator
        self._current: _Loaded | None = None
        self._loading: asyncio.Task[_Loaded] | None = None
        self._wanted = ""
        match options.form:
            case "probability":
                self.low, self.high = 0.0, 1.0
            case "log":
                self.low, self.high = math.log(_FLOOR), 0.0
            case _:
                self.low, self.high = -RANGE, RANGE

    async def load(self) -> None:
        """The version that there is, if there is one. Raises ConfigError for a device that does not work."""
        await asyncio.to_thread(import_libraries, self._context.component)
        with suppress(ScorerDownError):
            await self._newest()

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """All samples by one version, the current one, which each verdict names: meanwhile another may come.

        Raises ScorerDownError while there is none.
        """
        loaded = await self._newest()
        return [
            replace(found, version=loaded.version)
            if isinstance(found, Verdict)
            else Verdict(value=_formed(found, self._options.form), version=loaded.version)
            for found in await loaded.sequences.score(samples)
        ]

    async def close(self) -> None:
        """Fails all requests that still wait."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._current is not None:
            await self._current.sequences.passes.close()

    async def _newest(self) -> _Loaded:
        """Returns the newest version; one of the callers that find a new one loads it, and the others wait for it."""
        for _ in range(_TRIES):
            wanted = await asyncio.to_thread(self._look)
            if self._current is not None and wanted == self._current.name:
                return self._current
            if self._loading is None or self._wanted != wanted:
                self._wanted, self._loading = wanted, asyncio.create_task(self._load(wanted))
            what = f"the scorer {self._context.component} to load {wanted.split()[0]}"
            with suppress(_GoneError):
                return await wait_for(asyncio.shield(self._loading), self._options.load_s, what)
        raise ScorerDownError(f"{self._context.component}: {self._folder / _CURRENT} names versions that are not there")

    def _look(self) -> str:
        try:
            found = (self._folder / _CURRENT).read_text().strip()
        except FileNotFoundError:
            raise ScorerDownError(
                f"{self._context.component}: the trainer has published no version in {self._folder} yet "
                "([discriminator] every must be above 0)"
            ) from None
        except OSError as error:
            raise ScorerDownError(f"{self._context.component}: {self._folder / _CURRENT}: {error}") from error
        if not _NAMED.fullmatch(found):
            raise ScorerDownError(f"{self._context.component}: {self._folder / _CURRENT} names no version: {found!r}")
        return found

    async def _load(self, wanted: str) -> _Loaded:
        name, _, digest = wanted.partition(" ")
        options, path = self._options, self._folder / name
        try:
            classifier = await asyncio.to_thread(
                Classifier, path, device=options.device, dtype=options.dtype, component=self._context.component
            )
        except ConfigError as error:
            if not path.is_dir() or await asyncio.to_thread(self._look) != wanted:
                raise _GoneError(f"{path} was removed while it was loaded") from error
            raise
        finally:
            if self._wanted == wanted:
                self._loading = None
        loaded = _Loaded(
            name=wanted,
            version=f"{int(name.removeprefix('version-'))}-{digest[:DIGEST_LENGTH]}",
            sequences=ModelSequences(classifier, path, options, self._context),
        )
        if self._wanted == wanted:
            # Samples that the old one is scoring keep it until then.
            self._current, self.version = loaded, loaded.version
            log.info("discriminator_loaded", version=self.version)
        return loaded


def _formed(logit: float, form: str) -> float:
    if form == "logit" or math.isnan(logit):
        return logit
    probability = 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))
    return probability if form == "probability" else math.log(max(probability, _FLOOR))
