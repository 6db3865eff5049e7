"""The page at `/`: its files, with headers that keep it to its own server."""

import os
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

FOLDER = Path(__file__).parent / "page"

# Nothing from another address, no script or style in the HTML, no HTML made from text.
_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A browser asks each time whether its copy is still the newest, by the ETag.
    "Cache-Control": "no-cache",
}


class _PageFiles(StaticFiles):
    def file_response(
        self, full_path: str | os.PathLike[str], *arguments: Any, **named: Any
    ) -> Response:
        response = super().file_response(full_path, *arguments, **named)
        response.headers.update(HEADERS)
        return response


def page_routes() -> list[BaseRoute]:
    """The routes of the page: `/`, and its files under `/page/`. They need no access token."""
    files = _PageFiles(directory=FOLDER)

    async def page(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)

    return [Route("/", page, include_in_schema=False), Mount("/page", files)]
