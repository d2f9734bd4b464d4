"""The built page is served with types, tags and no surprises."""

from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from headrace.services.orchestrator.dashboard.static_files import add_static
from headrace.services.orchestrator.http.replies import RequestRefusedError, refusal


@pytest.fixture
def static(tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>x</title>")
    (folder / "assets" / "index.js").write_text("export {}")
    (folder / "favicon.svg").write_text("<svg/>")
    (folder / "secret.py").write_text("no")
    (tmp_path / "outside.js").write_text("no")
    return folder


def client(folder: Path) -> httpx.AsyncClient:
    app = FastAPI(docs_url=None, redoc_url=None)
    app.add_exception_handler(RequestRefusedError, refusal)
    add_static(app, folder)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1")


async def test_every_static_file_is_revalidated_by_its_etag(static: Path) -> None:
    tags = {}
    async with client(static) as http:
        for path, kind in (("/", "text/html"), ("/assets/index.js", "text/javascript"), ("/favicon.svg", "image/svg")):
            found = await http.get(path)
            assert found.headers["content-type"].startswith(kind) and found.headers["cache-control"] == "no-cache"
            again = await http.get(path, headers={"If-None-Match": found.headers["etag"]})
            assert again.status_code == 304 and not again.content
            tags[path] = found.headers["etag"]
    (static / "assets" / "index.js").write_text("export const changed = 1")
    async with client(static) as http:
        stale = await http.get("/assets/index.js", headers={"If-None-Match": tags["/assets/index.js"]})
        assert stale.status_code == 200 and stale.text == "export const changed = 1"


@pytest.mark.parametrize(
    "path",
    ["/secret.py", "/assets/../../outside.js", "/assets/%2e%2e/%2e%2e/outside.js", "/assets/none.js", "/outside.js"],
)
async def test_only_files_of_the_page_are_served(static: Path, path: str) -> None:
    async with client(static) as http:
        answer = await http.get(path)
        assert answer.status_code == 404 and "the page has no file" in answer.json()["error"]
