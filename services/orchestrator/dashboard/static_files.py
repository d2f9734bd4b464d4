"""The built page, served from the package: `/` and `/assets/`. Nothing is fetched from elsewhere."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Header, Response

from headrace.services.orchestrator.http.replies import RequestRefusedError

STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_ASK_AGAIN = "no-cache"
"""Names of the built files are stable: a browser keeps them, and asks by their ETag whether they are the newest."""
_MISSING = (
    "The dashboard's page is not part of this installation: services/orchestrator/dashboard/static/index.html is "
    "missing. Build it in a checkout: cd ui && npm ci && npm run build. The API is at /api, its description at "
    "/openapi.json."
)


@dataclass(frozen=True, slots=True)
class _File:
    data: bytes
    media_type: str
    etag: str


def add_static(app: FastAPI, folder: Path = STATIC) -> None:
    """Adds the routes; serves only files that exist in the folder now."""
    files = {path.relative_to(folder).as_posix(): _read(path) for path in folder.rglob("*") if path.suffix in _TYPES}

    def found(name: str, if_none_match: str | None) -> Response:
        file = files.get(name)
        if file is None:
            raise RequestRefusedError(404, _MISSING if name == "index.html" else f"the page has no file {name!r}")
        headers = {"ETag": file.etag, "Cache-Control": _ASK_AGAIN}
        if if_none_match is not None and file.etag in if_none_match:
            return Response(status_code=304, headers=headers)
        return Response(file.data, media_type=file.media_type, headers=headers)

    @app.get("/", include_in_schema=False)
    @app.get("/annotate", include_in_schema=False)
    async def get_page(if_none_match: str | None = Header(None)) -> Response:
        """The page."""
        return found("index.html", if_none_match)

    @app.get("/assets/{name:path}", include_in_schema=False)
    async def get_asset(name: str, if_none_match: str | None = Header(None)) -> Response:
        """An asset of the page."""
        return found(f"assets/{name}", if_none_match)

    @app.get("/{name}", include_in_schema=False)
    async def get_file(name: str, if_none_match: str | None = Header(None)) -> Response:
        """A file in the root folder, such as /icon.svg."""
        return found(name, if_none_match)


def _read(path: Path) -> _File:
    data = path.read_bytes()
    digest = hashlib.blake2b(data, digest_size=12).hexdigest()
    return _File(data, _TYPES[path.suffix], f'"{digest}"')
