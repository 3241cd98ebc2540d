"""The explorer: the report on one run, served with requests for all recorded inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from omniinput_hpc.annotation.security import Tokens
from omniinput_hpc.annotation.server import Json, guarded_app
from omniinput_hpc.errors import UserError
from omniinput_hpc.report.page import policy
from omniinput_hpc.report.recorded import Found, Recorded

SCRIPTS = ("page.js", "explore.js")
"""Of the explorer's page."""


def make_app(html: str, recorded: Recorded, cookie: str, token: str) -> Starlette:
    """Return the web application: the page, and what its script asks for."""
    reading = Lock()  # requests are answered in threads, and one run file is read by one of them

    def route(path: str, find: Callable[[Any], Found]) -> Route:
        def answer(request: Request) -> Response:
            with reading:
                return Json(asdict(find(request.query_params)))

        return Route(path, answer)

    def index(request: Request) -> Response:
        return HTMLResponse(html)

    routes = [
        Route("/", index),
        route("/api/bin", lambda asked: recorded.of_bin(_number(asked, "z"), _start(asked))),
        route("/api/search", lambda asked: recorded.search(asked.get("words", ""), _start(asked))),
        route("/api/extremes", lambda asked: recorded.extremes(asked.get("end", "low"))),
    ]
    allowed = f"{policy(SCRIPTS)}; frame-ancestors 'none'"
    return guarded_app(routes, Tokens(token, token), cookie, policy=allowed)


def _start(asked: Any) -> int:
    start = _number(asked, "start") if "start" in asked else 0.0
    if not 0 <= start < 1e15:
        raise UserError("start: expected the number of a sample")
    return int(start)


def _number(asked: Any, name: str) -> float:
    try:
        return float(asked.get(name, ""))
    except ValueError:
        raise UserError(f"{name}: expected a number") from None
