"""The page on which one annotator scores: Starlette and uvicorn on loopback (extra `annotate`)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import getpass
import hashlib
import json
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from markdown_it import MarkdownIt
from pydantic import Field
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from omniinput_hpc.annotation import progress
from omniinput_hpc.annotation.connections import ACCEPTED_AT_ONCE, ConnectionLimit
from omniinput_hpc.annotation.jsonl import Text, UnitScore, checked, expected, parse_object
from omniinput_hpc.annotation.scores import NotSaved
from omniinput_hpc.annotation.security import POLICY, PROGRESS_PATH, Guard, Tokens, stored_token
from omniinput_hpc.annotation.session import Session
from omniinput_hpc.annotation.tasks import Kind, TaskSet
from omniinput_hpc.errors import UserError
from omniinput_hpc.text import first_line
from omniinput_hpc.untrusted.files import read_text

PORTS = range(20_000, 30_000)
"""Below the ports that operating systems assign automatically."""
MAX_GUIDELINE_BYTES = 1 << 20
BACKLOG = 1024
"""Connections that may wait to be accepted."""
_PAGE = Path(__file__).with_name("page")
_STATIC = {"page.js": "text/javascript", "page.css": "text/css"}
_Nonce = Annotated[
    str, Field(strict=True, pattern="^[A-Za-z0-9]{8,64}$"), expected("8 to 64 letters and digits")
]
_Seconds = Annotated[
    float, Field(strict=True, ge=0, lt=1e6, allow_inf_nan=False), expected("a number >= 0")
]


@dataclass(frozen=True)
class Guideline:
    """Instructions for annotators.

    Attributes
    ----------
    version : a hash of the text, question and labels
    html : the text
    question : shown above each item, "" for none
    labels : of the only allowed scores, evenly spaced from 0 to 1; empty for any score
    """

    version: str
    html: str
    question: str = ""
    labels: tuple[str, ...] = ()


def read_guideline(
    path: Path | None, kind: Kind, question: str = "", labels: tuple[str, ...] = ()
) -> Guideline:
    """Return the guideline in a Markdown file; without one, the package's for this kind of task.

    HTML in the file is shown as text and pictures are left out, so that the page loads nothing.
    Raises a UserError if the file cannot be read.
    """
    text = read_text(path or _PAGE / f"guideline.{kind}.md", "guideline", MAX_GUIDELINE_BYTES)
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.disable(["image", "link", "autolink"])
    whole = text + (json.dumps([question, labels]) if question or labels else "")
    version = hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()[:12]
    return Guideline(version, str(markdown.render(text)), question, labels)


def labels_of(text: str) -> tuple[str, ...]:
    """Return the labels in ``no,partly,yes``, from the lowest score to the highest.

    Raises a UserError unless there are 2 to 10 different ones of at most 40 letters.
    """
    labels = tuple(part.strip() for part in text.split(","))
    if not 2 <= len(set(labels)) == len(labels) <= 10 or not all(0 < len(x) < 41 for x in labels):
        raise UserError(
            f'--labels "{text[:60]}": give 2 to 10 different labels of at most 40 letters, from '
            'the lowest score to the highest, separated by commas: "no,partly,yes"'
        )
    return labels


class Json(Response):
    """JSON in ASCII, which can carry lone surrogates."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the content as ASCII."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True)
class _ScoreRequest:
    """Body of /api/score."""

    id: Text
    score: UnitScore
    nonce: _Nonce
    seconds: _Seconds | None = None


@dataclass(frozen=True)
class _UndoRequest:
    """Body of /api/undo."""

    nonce: _Nonce


class _Page:
    """The page's files and its requests; a position is a task's index in the annotator's order."""

    def __init__(self, session: Session, tasks: TaskSet, guideline: Guideline, name: str) -> None:
        self._session = session
        self._files = {file: (_PAGE / file).read_text(encoding="utf-8") for file in _STATIC}
        self._tasks = tasks
        parts = {
            "annotator": escape(name),
            "guideline": guideline.html,
            "session": escape(cookie_name(tasks, name)),
            "question": escape(guideline.question),
            "labels": escape(json.dumps(guideline.labels)),
        }
        html = (_PAGE / "page.html").read_text(encoding="utf-8")
        self._html = re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], html)

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/", self._index),
            *(Route(f"/{file}", self._static) for file in _STATIC),
            Route("/api/first", self._first),
            Route("/api/item/{position:int}", self._item),
            Route("/api/after/{position:int}", self._after),
            Route("/api/score", self._score, methods=["POST"]),
            Route("/api/undo", self._undo, methods=["POST"]),
            Route(PROGRESS_PATH, self._progress),
        ]

    async def _index(self, request: Request) -> Response:
        return HTMLResponse(self._html)

    def _progress(self, request: Request) -> Response:  # in a thread: it reads files
        return HTMLResponse(
            progress.as_html(progress.progress_of(self._tasks), len(self._tasks.tasks))
        )

    async def _static(self, request: Request) -> Response:
        file = request.url.path[1:]
        return Response(self._files[file], media_type=_STATIC[file])

    async def _first(self, request: Request) -> Response:
        return self._next_unscored(-1)

    async def _item(self, request: Request) -> Response:
        return Json(self._session.view(int(request.path_params["position"])))

    async def _after(self, request: Request) -> Response:
        return self._next_unscored(int(request.path_params["position"]))

    def _next_unscored(self, position: int) -> Response:
        return Json(self._session.view(self._session.unscored_after(position)))

    async def _score(self, request: Request) -> Response:
        body = checked(_ScoreRequest, await _body(request), "the request")
        return Json(self._session.score(body.id, body.score, body.seconds, body.nonce))

    async def _undo(self, request: Request) -> Response:
        body = checked(_UndoRequest, await _body(request), "the request")
        return Json(self._session.undo(body.nonce))


def make_app(
    session: Session, tasks: TaskSet, guideline: Guideline, annotator: str, tokens: Tokens
) -> Starlette:
    """Return the web application for one annotator."""
    routes = _Page(session, tasks, guideline, annotator).routes
    return guarded_app(routes, tokens, cookie_name(tasks, annotator), _heartbeats(session))


def guarded_app(
    routes: Sequence[Route], tokens: Tokens, cookie: str, lifespan: Any = None, policy: str = POLICY
) -> Starlette:
    """Return a web application for `serve`, whose requests a `Guard` checks."""
    limit = ConnectionLimit()
    guard = Middleware(
        Guard, tokens=tokens, cookie=cookie, authenticated=limit.authenticated, policy=policy
    )
    app = Starlette(
        routes=routes, middleware=[guard], lifespan=lifespan,
        exception_handlers={UserError: _refusal, NotSaved: _refusal, OSError: _failure},
    )  # fmt: skip
    app.state.connection_limit = limit
    return app


def cookie_name(tasks: TaskSet, annotator: str) -> str:
    """Return the cookie's name for a task set and annotator."""
    return f"omniinput-{tasks.tasks_id}-{annotator}"


def progress_name(tasks: TaskSet) -> str:
    """Return the name of the progress page's token; annotators' names cannot hold its dot."""
    return f"omniinput-{tasks.tasks_id}.progress"


async def _body(request: Request) -> dict[str, Any]:
    return parse_object(await request.body(), "the request")


async def _refusal(request: Request, error: Exception) -> Response:
    return Json({"error": str(error)}, status_code=507 if isinstance(error, NotSaved) else 400)


async def _failure(request: Request, error: Exception) -> Response:
    """Answer a failure of the disk like `NotSaved`, so that the page shows it."""
    reason = error.strerror if isinstance(error, OSError) else None
    return Json({"error": f"not saved: {reason or first_line(error)}"}, status_code=507)


def _heartbeats(session: Session) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async def repeat() -> None:
            while True:
                session.heartbeat()
                await asyncio.sleep(5)

        task = asyncio.create_task(repeat())
        yield
        task.cancel()

    return lifespan


def default_ports(name: str) -> list[int]:
    """Return the ports to try without --port: one from a hash of the name, and the 49 after it."""
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return [PORTS[(first + i) % len(PORTS)] for i in range(50)]


def bind(port: int | None, name: str) -> socket.socket:
    """Return a listening socket on loopback.

    The default port is the first free one of `default_ports`, or else any free port. An annotator's
    port therefore usually stays the same when the server restarts, so that open pages and tunnels
    still work. Raises a UserError if the requested port cannot be used.
    """
    defaults = default_ports(name)
    for candidate in [port] if port is not None else [*defaults, 0]:
        # asyncio sets TCP_NODELAY only if the protocol is named; else an answer's body waits 40 ms
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", candidate))
            listening.listen(BACKLOG)
        except (OSError, OverflowError) as error:
            listening.close()
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            if port is None and taken:
                continue
            problem = f"cannot be used: {'it is taken' if taken else error}"
            raise UserError(f"port {candidate} {problem}; choose another --port") from None
        return listening
    raise AssertionError("port 0 is never taken")


@dataclass(frozen=True)
class Address:
    """The address of a page that is served.

    Attributes
    ----------
    port : on loopback
    token : opens the page
    elsewhere : whether another process holds the usual port, so that the token is new
    notes : for the user
    """

    port: int
    token: str
    elsewhere: bool
    notes: Sequence[str]

    def lines(self, more: Sequence[str] = ()) -> list[str]:
        """Return how to open the page here, and from another machine; `more` comes between."""
        here = f"{getpass.getuser()}@{socket.getfqdn()}"
        return [
            f"open    http://localhost:{self.port}/?token={self.token}",
            *more,
            "from another machine, first (leave it running):",
            f"        ssh -N -L {self.port}:127.0.0.1:{self.port} {here}",
        ]


def address_of(listening: socket.socket, asked: int | None, name: str) -> Address:
    """Return the address of a page on a socket of `bind`, with the page's stored token."""
    first, port = default_ports(name)[0], listening.getsockname()[1]
    elsewhere = asked is None and port != first
    token, stored = stored_token(name, renew=elsewhere)
    notes = {
        f"note: port {first} is held by another process, so that port and token are new: close an "
        "old page and its tunnel": elsewhere,
        "note: the token could not be stored: after a restart open the new address": not stored,
    }
    said = [note for note, holds in notes.items() if holds]
    return Address(port, token, elsewhere, said)


class _Server(uvicorn.Server):
    """uvicorn's server with a long queue: its `backlog` also limits how many it accepts at once."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)


def serve(app: Starlette, listening: socket.socket, announce: Callable[[], None]) -> None:
    """Call `announce` once signals are handled, then serve until SIGINT or SIGTERM.

    `app` comes from `make_app`; its connections are limited (see `connections`).
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        http=app.state.connection_limit.protocol(),
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=16384,
        proxy_headers=False,
    )
    server = _Server(config)

    def stop(*_: object) -> None:
        server.should_exit = True

    # needed before uvicorn installs its handlers, and when it raises the signal again at exit
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    announce()
    server.run(sockets=[listening])
