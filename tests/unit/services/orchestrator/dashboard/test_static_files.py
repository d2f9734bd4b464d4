"""The built page is served with types, tags and no surprises."""

from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from headrace.services.orchestrator.dashboard.static_files import add_static


@pytest.fixture
def static(tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>x</title>")
    (folder / "assets" / "index-Ab12_-9z.js").write_text("export {}")
    (folder / "favicon.svg").write_text("<svg/>")
    (folder / "secret.py").write_text("no")
    (tmp_path / "outside.js").write_text("no")
    return folder


def client(folder: Path) -> httpx.AsyncClient:
    app = FastAPI(docs_url=None, redoc_url=None)
    add_static(app, folder)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1")


async def test_the_page_is_asked_for_again_and_its_hashed_parts_never(static: Path) -> None:
    async with client(static) as http:
        page = await http.get("/")
        assert (
            page.headers["content-type"] == "text/html; charset=utf-8" and "no-cache" in page.headers["cache-control"]
        )
        again = await http.get("/", headers={"If-None-Match": page.headers["etag"]})
        assert again.status_code == 304 and not again.content
        script = await http.get("/assets/index-Ab12_-9z.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert "immutable" in script.headers["cache-control"]
        icon = await http.get("/favicon.svg")
        assert icon.headers["content-type"] == "image/svg+xml" and "immutable" not in icon.headers["cache-control"]


@pytest.mark.parametrize(
    "path",
    ["/secret.py", "/assets/../../outside.js", "/assets/%2e%2e/%2e%2e/outside.js", "/assets/none.js", "/outside.js"],
)
async def test_nothing_else_is_served(static: Path, path: str) -> None:
    async with client(static) as http:
        assert (await http.get(path)).status_code == 404


async def test_without_a_built_page_it_is_said_how_to_build_it(tmp_path: Path) -> None:
    async with client(tmp_path / "none") as http:
        answer = await http.get("/")
        assert answer.status_code == 404 and "npm run build" in answer.text
