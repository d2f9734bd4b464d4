"""Writes every generated file that Python can write: `python generate.py`; with `--check` it names those that are old.

The page's types and the built page need Node: `make generate` writes them, too.
"""

import argparse
import json
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from deploy.grafana import generate as grafana
from headrace.reference import algorithm_docs, config_docs, metric_docs, openapi
from headrace.wire.telemetry.metric_table import METRICS

ROOT = Path(__file__).parent
Files = Iterator[tuple[Path, str]]
"""File -> what it should hold."""


def contracts() -> Files:
    """`wire/v1` from `proto/wire/v1`."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([sys.executable, ROOT / "proto" / "generate.py", out], check=True, timeout=120)
        for path in sorted((Path(out) / "wire" / "v1").iterdir()):
            yield ROOT / "wire" / "v1" / path.name, path.read_text(encoding="utf-8")


def pages() -> Files:
    """The pages of the documentation, or their sections, that the code describes."""
    yield config_docs.DOC, config_docs.as_markdown()
    for made in (algorithm_docs, metric_docs):
        yield made.DOC, made.written(made.DOC.read_text(encoding="utf-8"))


def dashboards() -> Files:
    """Grafana's dashboards, and Prometheus' rules as Kubernetes takes them."""
    for name, text in grafana.rendered().items():
        yield grafana.FOLDER / name, text
    maker = ROOT / "deploy" / "kubernetes" / "components" / "monitoring" / "make_rules.py"
    yield maker.with_name("rules.yaml"), runpy.run_path(str(maker))["rules"]()


def page() -> Files:
    """The dashboard's: the schema of its API, and the words of the metrics."""
    yield ROOT / "ui" / "openapi.json", openapi.as_json()
    rows = ",\n".join(json.dumps([key, one.group, one.unit, one.text]) for key, one in METRICS.items())
    yield ROOT / "ui" / "src" / "charts" / "metrics.json", f"[\n{rows}\n]\n"


GENERATORS: tuple[Callable[[], Files], ...] = (contracts, pages, dashboards, page)


def old_files(generators: Iterable[Callable[[], Files]] = GENERATORS) -> dict[Path, str]:
    """Files that hold something else than they should -> what they should hold."""
    found = dict(pair for generator in generators for pair in generator())
    return {
        path: text for path, text in found.items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    }


def main() -> int:
    """Writes what is old, or names it; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a file is old")
    check = parser.parse_args().check
    old = old_files()
    for path, text in old.items():
        sys.stdout.write(f"{'old' if check else 'written'}: {path.relative_to(ROOT)}\n")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
