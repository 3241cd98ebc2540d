"""The page's connections: each must ask soon, and those without the token cannot use up the places.

All users of a login node may connect to the page's port. A connection that has not asked anything
within `SECONDS_TO_ASK` is closed, and so is one whose request showed no token, once it is answered.
Connections that have not shown the token are at most `MAX_UNKNOWN`: one more closes the oldest of
them, never one that has shown it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_TO_ASK = 5.0
MAX_UNKNOWN = 512
ACCEPTED_AT_ONCE = 64
"""Far below `MAX_UNKNOWN`: who asks at once is read before being the oldest."""
MAX_AUTHENTICATED = 64
"""Connections that have shown the token; a browser opens some six."""


class ConnectionLimit:
    """The open connections, those that have shown the token apart."""

    def __init__(self) -> None:
        self._unknown: dict[Any, _Connection] = {}  # by the client's address, oldest first
        self._authenticated: dict[Any, _Connection] = {}

    def authenticated(self, client: Any) -> None:
        """Note that the connection of this address (of an ASGI scope) has shown the token."""
        connection = self._unknown.pop(client, None)
        if connection is not None:
            self._authenticated[client] = connection
            _close_oldest(self._authenticated, MAX_AUTHENTICATED)

    def opened(self, connection: _Connection) -> None:
        """Take in a new connection; the oldest that has shown no token may have to go."""
        self._unknown[connection.client] = connection
        _close_oldest(self._unknown, MAX_UNKNOWN)

    def closed(self, connection: _Connection) -> None:
        """Forget a connection that is closed."""
        for group in (self._unknown, self._authenticated):
            if group.get(connection.client) is connection:
                del group[connection.client]

    def is_authenticated(self, connection: _Connection) -> bool:
        """Whether a connection has shown the token."""
        return self._authenticated.get(connection.client) is connection

    def protocol(self) -> type[asyncio.Protocol]:
        """Return what uvicorn is to speak HTTP by."""
        return type("Connection", (_Connection,), {"limit": self})


def _close_oldest(group: dict[Any, _Connection], most: int) -> None:
    while len(group) > most:
        group.pop(next(iter(group))).transport.abort()


class _Connection(H11Protocol):
    """uvicorn's own, with a time by which the headers of a request must have come whole."""

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
