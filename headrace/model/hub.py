"""Models by their id on the Hugging Face Hub: fetched once, whole, into HF_HOME, and pinned to a commit.

As a program (`python -P -m headrace.model.hub ID REVISION`) it fetches one and prints a JSON object, so that
the command line itself stays small and free of threads.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from headrace.config.resolve import Resolved, with_hub_model
from headrace.supervisor.once import child_environment, python
from headrace.wire.config.kept import kept_tables
from headrace.wire.errors import ConfigError
from headrace.wire.process.lifecycle import die_with_parent

FETCH_S = 24 * 3600.0
"""Deadline for one model, in seconds. A stalled connection ends far sooner (HF_HUB_DOWNLOAD_TIMEOUT)."""
DEFAULT_REVISION = "main"
_PATTERNS = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""Files that are read from a model folder; the same weights in other formats are not fetched."""
_IGNORED = ("original/*", "onnx/*", "*.index.fp16.json")


def fetch_model(resolved: Resolved, run_dir: Path, *, goes_on: bool, environment: Mapping[str, str]) -> Resolved:
    """Replaces a Hub id in the config by its folder and commit; returns it unchanged if `model.path` is a folder.

    `goes_on`: a resumed run keeps its first commit, and fetches the folder again if it is gone. Raises ConfigError.
    """
    name, revision = _wanted(resolved, run_dir, goes_on=goes_on)
    if not name:
        return resolved
    found = _fetch(name, revision, environment)
    if "error" in found:
        raise ConfigError(f"{resolved.place('model', 'path')}: {_explained(found, name, revision)}")
    return with_hub_model(resolved, name, found["commit"], Path(found["path"]))


def _wanted(resolved: Resolved, run_dir: Path, *, goes_on: bool) -> tuple[str, str]:
    """Id and revision to fetch; an empty id if there is nothing to fetch."""
    model = resolved.config.model
    if model.hub_id is None:
        gone = model.hub and not model.path.is_dir()
        return (model.hub, model.revision) if gone else ("", "")
    kept = kept_tables(run_dir).get("model", {}) if goes_on else {}
    if kept.get("hub") == model.hub_id and ("model", "revision") not in resolved.layer:
        return model.hub_id, str(kept["revision"])
    return model.hub_id, model.revision or DEFAULT_REVISION


def _fetch(name: str, revision: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Runs `main` in a child and returns what it prints. Its progress bar is on stderr, where there is a terminal."""
    env = child_environment(dict(environment), threads=1)
    if not sys.stderr.isatty():
        env["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    try:
        done = subprocess.run(
            python("headrace.model.hub", name, revision),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=FETCH_S,
            check=False,
            preexec_fn=die_with_parent,
        )
    except subprocess.TimeoutExpired:
        return {"error": "late", "said": f"not whole after {FETCH_S:g} s"}
    try:
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": "crash", "said": f"status {done.returncode}"}
    return found


def _explained(found: Mapping[str, str], name: str, revision: str) -> str:
    """The error message with its fix."""
    ways = {
        "absent": f"there is no such folder, and no model {name!r} on the Hub (or it is private: set HF_TOKEN)",
        "gated": f"{name} is gated: accept its terms on its page, and set HF_TOKEN",
        "revision": f"{name} has no revision {revision!r}: correct model.revision (a commit, tag or branch)",
        "offline": (
            f"there is no folder {name}, no model of this id in {found.get('cache', 'HF_HOME')}, and the Hub cannot be "
            f"reached. Fetch it where there is a network (`hf download {name} --revision {revision}`) and set HF_HOME "
            "to that cache, or give its folder"
        ),
        "weights": f"{name} at {revision} has no safetensors file: only those are read",
    }
    said = found.get("said", "")
    way = ways.get(found["error"], f"{name} cannot be fetched")
    return f"{way} ({said})" if said else way


def main() -> int:
    """Fetches one model; prints `path` and `commit`, or `error` and the library's message."""
    parser = argparse.ArgumentParser(prog="headrace.model.hub")
    parser.add_argument("name")
    parser.add_argument("revision")
    options = parser.parse_args()
    sys.stdout.write(json.dumps(download(options.name, options.revision)) + "\n")
    return 0


def download(name: str, revision: str) -> dict[str, str]:
    """Returns the snapshot's folder and commit, downloading what the cache lacks; on failure an `error`."""
    from huggingface_hub import constants, errors, snapshot_download

    def failed(kind: str, error: Exception) -> dict[str, str]:
        line = next(iter(str(error).strip().splitlines()), type(error).__name__).removeprefix("Got: ")
        return {"error": kind, "said": line, "cache": constants.HF_HUB_CACHE}

    try:
        folder = Path(
            snapshot_download(name, revision=revision, allow_patterns=list(_PATTERNS), ignore_patterns=list(_IGNORED))
        )
    except errors.GatedRepoError as error:
        return failed("gated", error)
    except errors.RepositoryNotFoundError as error:
        return failed("absent", error)
    except errors.RevisionNotFoundError as error:
        return failed("revision", error)
    except (errors.LocalEntryNotFoundError, errors.IncompleteSnapshotError) as error:
        return failed("offline", error)
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        return failed("other", error)
    if not any(folder.glob("*.safetensors")):
        return {"error": "weights"}
    return {"path": str(folder), "commit": folder.name}


if __name__ == "__main__":
    sys.exit(main())
