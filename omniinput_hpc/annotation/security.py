"""Check every request to the annotation page: its host, token, origin and size.

The server listens on loopback, which all users of a login node share; the token in the printed
address keeps the others out. It becomes a cookie that other sites' pages cannot send. ``Host`` must
name loopback (otherwise another site could point its own name here), and ``Origin`` the same host.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 4096
PROGRESS_PATH = "/progress"
HOSTS = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Tokens:
    """The secrets in the printed addresses.

    Attributes
    ----------
    annotator : opens the page of one annotator
    progress : opens only `PROGRESS_PATH`, which no other token opens
    """

    annotator: str
    progress: str


class Guard:
    """ASGI middleware that refuses requests failing a check; every answer gets `HEADERS`, a policy.

    Parameters
    ----------
    app : the guarded application
    tokens : for this annotator's page, and for the progress page
    cookie : the cookie's name, different for each annotator and task set: cookies ignore ports, and
        two annotators may tunnel to one laptop
    authenticated : called with the client's address of each request that has shown the token
    policy : the content security policy
    """

    def __init__(
        self, app: ASGIApp, tokens: Tokens, cookie: str, authenticated: Callable[[Any], None],
        policy: str = POLICY,
    ) -> None:  # fmt: skip
        self._app, self._tokens, self._cookie = app, tokens, cookie
        self._authenticated = authenticated
        headers = {**HEADERS, "content-security-policy": policy}
        self._headers = [(k.encode(), v.encode()) for k, v in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it on or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        new_cookie, refused = self._check(scope)
        if refused is None:
            self._authenticated(scope.get("client"))
            if _may_be_large(Headers(scope=scope)):
                refused = (413, "the request is too large")

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self._headers, *new_cookie]
            await send(message)

        if refused is not None:
            status, reason = refused
            await JSONResponse({"error": reason}, status)(scope, receive, guarded_send)
            return
        await self._app(scope, receive, guarded_send)

    def _check(self, scope: Scope) -> tuple[list[tuple[bytes, bytes]], tuple[int, str] | None]:
        """Return the cookie to set, and status and reason of a refusal (None: accepted)."""
        request = HTTPConnection(scope)
        headers = request.headers
        host = headers.get("host", "")
        if host.rpartition(":")[0] not in HOSTS and host not in HOSTS:
            return [], (403, "this page is served only under 127.0.0.1 and localhost")
        origin = headers.get("origin")
        if scope["method"] not in ("GET", "HEAD"):
            json_body = headers.get("content-type", "").partition(";")[0] == "application/json"
            if origin is None or not json_body:
                return [], (403, "only the page itself may write")
        if origin is not None and origin != f"http://{host}":
            return [], (403, "the request comes from another site")
        given = request.query_params.get("token", "")
        if scope["path"] == PROGRESS_PATH:
            if _same(given, self._tokens.progress):
                return [], None
            return [], (403, "open the address of the progress page that the server printed")
        if scope["path"] == "/" and _same(given, self._tokens.annotator):
            cookie = f"{self._cookie}={self._tokens.annotator}; Path=/; HttpOnly; SameSite=Strict"
            return [(b"set-cookie", cookie.encode())], None
        if _same(request.cookies.get(self._cookie, ""), self._tokens.annotator):
            return [], None
        return [], (403, "open the address with the token that the server printed")


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _may_be_large(headers: Headers) -> bool:
    """Whether a body may exceed `MAX_BODY_BYTES`; the server enforces the length that is given."""
    length = headers.get("content-length", "0")
    in_parts = "transfer-encoding" in headers  # of any length
    return in_parts or not length.isdigit() or int(length) > MAX_BODY_BYTES


def stored_token(name: str, renew: bool = False) -> tuple[str, bool]:
    """Return this user's token for a task set and annotator, and whether it is stored.

    A stored token, which only this user can read, keeps an open page working after a restart.
    `renew` makes a new one, for when somebody else has taken the page's port: an open page has sent
    them the old one.
    """
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    file = Path(state) / "omniinput_hpc" / f"{name}.token"
    token = secrets.token_urlsafe(24)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if renew:
            file.unlink(missing_ok=True)
        try:
            descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            stored = file.read_text(encoding="ascii", errors="replace").strip()
            private = file.stat().st_uid == os.getuid() and not file.stat().st_mode & 0o077
            if private and len(stored) == len(token) and stored.isascii():
                return stored, True
            file.unlink()
            descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as handle:
            handle.write(token)
    except OSError:
        return token, False
    return token, True
