"""The page where one annotator scores: Starlette and uvicorn on loopback (extra `annotate`)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import math
import signal
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, TypeGuard

import uvicorn
from markdown_it import MarkdownIt
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from omniinput_hpc.annotation.scores import NotSaved
from omniinput_hpc.annotation.security import Guard
from omniinput_hpc.annotation.session import Session
from omniinput_hpc.annotation.tasks import Kind, TaskSet
from omniinput_hpc.errors import UserError

_PAGE = Path(__file__).with_name("page")
PORTS = range(20_000, 30_000)
"""Below those that systems hand out by themselves."""


@dataclass(frozen=True)
class Guideline:
    """What annotators are told: its version (of its text), and the HTML made from it."""

    version: str
    html: str


def read_guideline(path: Path | None, kind: Kind) -> Guideline:
    """Return the guideline of a Markdown file, or the one that comes with the package.

    HTML in the file is shown as text, and pictures are left out: the page loads nothing.

    Raises
    ------
    UserError
        The file cannot be read.
    """
    path = path or _PAGE / f"guideline.{kind}.md"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"{path} cannot be read: {reason}") from None
    markdown = MarkdownIt("commonmark", {"html": False}).disable(["image", "link", "autolink"])
    return Guideline(hashlib.sha256(text.encode()).hexdigest()[:12], str(markdown.render(text)))


class _Json(Response):
    """JSON in ASCII, so that lone surrogates in a text pass, too."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def make_app(
    session: Session, tasks: TaskSet, guideline: Guideline, annotator: str, token: str
) -> Starlette:
    """Return the application of one annotator."""
    files = {name: (_PAGE / name).read_text(encoding="utf-8") for name in _STATIC}
    page = (_PAGE / "page.html").read_text(encoding="utf-8")
    page = page.replace("{annotator}", escape(annotator)).replace("{guideline}", guideline.html)
    page = page.replace("{session}", escape(cookie_name(tasks, annotator)), 1)

    async def index(request: Request) -> Response:
        return HTMLResponse(page)

    async def static(request: Request) -> Response:
        name = request.url.path[1:]
        return Response(files[name], media_type=_STATIC[name])

    async def first(request: Request) -> Response:
        return _Json(session.view(session.unscored_after(-1)))

    async def item(request: Request) -> Response:
        return _Json(session.view(int(request.path_params["position"])))

    async def after(request: Request) -> Response:
        return _Json(session.view(session.unscored_after(int(request.path_params["position"]))))

    async def score(request: Request) -> Response:
        body = await _body(request)
        id_, value, nonce = body.get("id"), body.get("score"), body.get("nonce")
        seconds = body.get("seconds")
        if not isinstance(id_, str) or not _is_nonce(nonce):
            raise UserError("a score needs an id and a nonce")
        if not _is_number(value) or not 0.0 <= value <= 1.0:
            raise UserError("a score must be a number from 0 to 1")
        if seconds is not None and not (_is_number(seconds) and 0.0 <= seconds < 1e6):
            raise UserError("the seconds must be a number from 0 on")
        return _Json(session.score(id_, float(value), seconds, nonce))

    async def undo(request: Request) -> Response:
        nonce = (await _body(request)).get("nonce")
        if not _is_nonce(nonce):
            raise UserError("an undo needs a nonce")
        return _Json(session.undo(nonce))

    return Starlette(
        routes=[
            Route("/", index),
            *(Route(f"/{name}", static) for name in _STATIC),
            Route("/api/first", first),
            Route("/api/item/{position:int}", item),
            Route("/api/after/{position:int}", after),
            Route("/api/score", score, methods=["POST"]),
            Route("/api/undo", undo, methods=["POST"]),
        ],
        middleware=[Middleware(Guard, token=token, cookie=cookie_name(tasks, annotator))],
        exception_handlers={UserError: _plain, NotSaved: _plain},
        lifespan=_signs_of_life(session),
    )


_STATIC = {"page.js": "text/javascript", "page.css": "text/css"}


def cookie_name(tasks: TaskSet, annotator: str) -> str:
    """Return the name of the cookie."""
    return f"omniinput-{tasks.tasks_id}-{annotator}"


async def _body(request: Request) -> dict[str, Any]:
    try:
        value = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise UserError("the request is no JSON") from None
    if not isinstance(value, dict):
        raise UserError("the request is no JSON object")
    return value


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_nonce(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 8 <= len(value) <= 64 and value.isalnum()


async def _plain(request: Request, error: Exception) -> Response:
    return _Json({"error": str(error)}, status_code=507 if isinstance(error, NotSaved) else 400)


def _signs_of_life(session: Session) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async def touch() -> None:
            while True:
                session.heartbeat()
                await asyncio.sleep(5)

        task = asyncio.create_task(touch())
        yield
        task.cancel()

    return lifespan


def bind(port: int | None, name: str) -> socket.socket:
    """Return a socket on loopback: on the port, or on the first free one from the name's own on.

    An annotator's port stays the same, in whatever order servers start again, so that open pages
    and tunnels find theirs.

    Parameters
    ----------
    port : None for the name's own
    name : of task set and annotator

    Raises
    ------
    UserError
        The port is taken.
    """
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    own = [PORTS[(first + i) % len(PORTS)] for i in range(50)]
    for candidate in [port] if port is not None else [*own, 0]:
        # with the protocol named, asyncio sets TCP_NODELAY: else an answer's body waits 40 ms
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", candidate))
            listening.listen(64)
        except (OSError, OverflowError) as error:
            listening.close()
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            if port is None and taken:
                continue
            reason = "it is taken" if taken else str(error)
            raise UserError(
                f"port {candidate} cannot be used: {reason}; choose another --port"
            ) from None
        return listening
    raise AssertionError("port 0 is never taken")


def serve(app: Starlette, listening: socket.socket, announce: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM, and return; what `announce` says holds from then on."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        limit_concurrency=64,
        h11_max_incomplete_event_size=16384,
        proxy_headers=False,
    )
    server = uvicorn.Server(config)

    def stop(*_: object) -> None:
        server.should_exit = True

    # until uvicorn's own handlers are there, and where it raises the signal again at its end
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    announce()
    server.run(sockets=[listening])
