"""Held versions as Hugging Face folders on disk, written on request."""

import asyncio
import json
import shutil
from pathlib import Path

from headrace.services.trainer.publication.held import Held
from headrace.services.trainer.publication.transfer_metrics import timed_send
from headrace.wire.rundir.model_files import TOKENIZER_FILES
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.weights import save_weights, tensors_of

log = get_logger("trainer.copies")
_KEPT = 2


class Copies:
    """Writes `RUN/weights/vNNNNNN`, whole or not at all, one writer at a time."""

    def __init__(self, folder: Path, model_path: Path) -> None:
        self._folder = folder
        self._model_path = model_path
        self._lock = asyncio.Lock()

    async def save(self, held: Held) -> Path:
        """Returns the folder of this version, writing it if it is not there."""
        path = (self._folder / f"v{held.version:06d}").absolute()
        async with self._lock:
            await asyncio.to_thread(self._write, path, held)
        return path

    def _write(self, path: Path, held: Held) -> None:
        mark = path / "manifest.json"
        if mark.is_file() and json.loads(mark.read_text())["metadata"].get("digest") == held.digest:
            return
        with held.read() as snapshot:
            plan = snapshot.plan
            metadata = {"version": str(held.version), "digest": held.digest}
            named = tensors_of(plan, snapshot.buckets)
            with timed_send("disk", plan):
                if plan.adapter_config:
                    files = {"adapter_config.json": plan.adapter_config.encode()}
                    save_weights(path, named, metadata, weights_file="adapter_model.safetensors", files=files)
                else:
                    save_weights(path, named, metadata, files=self._files(plan.buckets[0].dtype))
        log.info("weights_saved", version=held.version, path=str(path))
        self._keep_newest()

    def _files(self, dtype: str) -> dict[str, bytes]:
        """The files beside the weights that make it a model folder which any engine loads."""
        files = {name: self._model_path / name for name in TOKENIZER_FILES}
        found = {name: path.read_bytes() for name, path in files.items() if path.is_file()}
        config = json.loads((self._model_path / "config.json").read_text())
        return found | {"config.json": json.dumps(config | {"dtype": dtype}, indent=2).encode()}

    def _keep_newest(self) -> None:
        """Removes older versions: a reader of a removed one notices by its manifest, and requests it again."""
        for path in sorted(self._folder.glob("v*"))[:-_KEPT]:
            shutil.rmtree(path, ignore_errors=True)
