"""Limits on the annotation page's connections, so that strangers cannot block the page.

Every user of a login node can connect to the page's port. A connection that sends no complete
request within `SECONDS_TO_ASK` is closed. One whose request lacks the token is closed after the
answer. At most `MAX_UNKNOWN` connections without the token stay open: one more closes the oldest
of them, never one that has shown the token.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_TO_ASK = 5.0
MAX_UNKNOWN = 512
ACCEPTED_AT_ONCE = 64
"""Far below `MAX_UNKNOWN`: a client that asks at once is read before it becomes the oldest."""
MAX_AUTHENTICATED = 64
"""Connections that have shown the token; a browser opens about six."""


class ConnectionLimit:
    """The open connections, those that have shown the token kept separately."""

    def __init__(self) -> None:
        self._unknown: dict[Any, _Connection] = {}  # by the client's address, oldest first
        self._authenticated: dict[Any, _Connection] = {}

    def authenticated(self, client: Any) -> None:
        """Record that the connection of this client (of an ASGI scope) has shown the token."""
        connection = self._unknown.pop(client, None)
        if connection is not None:
            self._authenticated[client] = connection
            _close_oldest(self._authenticated, MAX_AUTHENTICATED)

    def opened(self, connection: _Connection) -> None:
        """Add a new connection; close the oldest one without the token if there are too many."""
        self._unknown[connection.client] = connection
        _close_oldest(self._unknown, MAX_UNKNOWN)

    def closed(self, connection: _Connection) -> None:
        """Remove a closed connection."""
        for group in (self._unknown, self._authenticated):
            if group.get(connection.client) is connection:
                del group[connection.client]

    def is_authenticated(self, connection: _Connection) -> bool:
        """Whether a connection has shown the token."""
        return self._authenticated.get(connection.client) is connection

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the HTTP protocol class for uvicorn."""
        return type("Connection", (_Connection,), {"limit": self})


def _close_oldest(group: dict[Any, _Connection], most: int) -> None:
    while len(group) > most:
        group.pop(next(iter(group))).transport.abort()


class _Connection(H11Protocol):
    """uvicorn's HTTP protocol with a deadline for the complete headers of a request."""

    limit: ConnectionLimit
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline()
        self.limit.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self.limit.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_deadline()  # a request is being answered

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.limit.is_authenticated(self):
            self._set_deadline()
        else:
            self.transport.close()

    def _set_deadline(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(SECONDS_TO_ASK, self.transport.abort)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
