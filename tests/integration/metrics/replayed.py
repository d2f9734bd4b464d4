"""Metrics that a small run does not have, served by a stand-in: an SGLang server's as recorded, a judge's made up."""

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.reference.metric_docs import Described, describe

RECORDED = Path(__file__).parent / "sglang.prom"
"""Metrics of the real SGLang 0.5.23 after three requests; `test_passed_on.py` compares it with a live one."""

_OPTIONAL = re.compile("headrace_(reward_endpoint|environment)_")
"""Only runs with endpoints or an environment have these."""

COUNTERS = Path(__file__).parent / "dcgm.csv"
"""NVIDIA's own list; see its head."""


def engine_names() -> set[str]:
    """Series of the recorded server."""
    return set(re.findall(r"^(sglang:\w+)", RECORDED.read_text(encoding="utf-8"), flags=re.MULTILINE))


def gpu_names() -> set[str]:
    """Series of NVIDIA's exporter."""
    return set(_counters())


def _counters() -> dict[str, str]:
    """Name -> type."""
    lines = [line for line in COUNTERS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return dict(line.split(",") for line in lines)


def of_a_gpu() -> str:
    """The text of a scrape of NVIDIA's exporter for one GPU, with the labels that it gives."""
    labels = 'gpu="0",UUID="GPU-1",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H100",hostname="a"'
    return "".join(f"# TYPE {name} {kind}\n{name}{{{labels}}} 1\n" for name, kind in _counters().items())


def replayed(run: str, replica: str) -> str:
    """The text of a scrape, with the labels of a process."""
    labels = f'run="{run}",replica="{replica}"'
    engine = re.sub(r"^(sglang:\w+)\{", rf"\1{{{labels},", RECORDED.read_text(encoding="utf-8"), flags=re.MULTILINE)
    optional = [metric for metric in describe() if _OPTIONAL.match(metric.name)]
    return engine + "".join(_made_up(metric, labels) for metric in optional)


def _made_up(metric: Described, labels: str) -> str:
    own = "".join(f',{label}="some"' for label in metric.labels)
    lines = [f"{name}{{{labels}{own}" + (',le="+Inf"' if name.endswith("_bucket") else "") for name in metric.series]
    return f"# TYPE {metric.name} {metric.kind}\n" + "".join(f"{line}}} 1\n" for line in lines)


@contextmanager
def served(text: str) -> Iterator[str]:
    """Serves it at /metrics; gives host:port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
