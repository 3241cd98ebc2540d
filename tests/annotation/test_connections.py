"""Many connections to the page: idle ones are closed, and cannot take the annotator's places."""

import socket
import time
from contextlib import ExitStack, contextmanager
from http.client import HTTPException

import pytest
from page_server import PATIENCE, Server
from task_files import make_tasks

from omniinput_hpc.annotation import connections
from omniinput_hpc.annotation.connections import (
    MAX_AUTHENTICATED,
    MAX_UNKNOWN,
    SECONDS_TO_ASK,
    ConnectionLimit,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(make_tasks(tmp_path_factory.mktemp("connections"), 40).path, "ana") as running:
        yield running


def connect(server, text=b""):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    connection.sendall(text)
    return connection


@contextmanager
def idle_connections(server, n, text):
    with ExitStack() as stack:
        yield [stack.enter_context(connect(server, text)) for _ in range(n)]


def seconds_of_scores(server, first, n=5):
    """Return the longest time that a score took, each over new connections."""
    longest = 0.0
    for i in range(first, first + n):
        begin = time.monotonic()
        id_ = again(server.get, f"/api/item/{i}")[1]["item"]["id"]
        assert again(server.post, "/api/score", id=id_, score=0.5, nonce=f"nonce{i:04}")[0] == 200
        longest = max(longest, time.monotonic() - begin)
    return longest


def again(call, *arguments, **body):
    """Call as the page does: where the connection was closed, once more."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return call(*arguments, **body)
        except (OSError, HTTPException):
            if time.monotonic() > end:
                raise


@pytest.mark.parametrize(("first", "text"), [(0, b""), (10, b"GET / HTTP/1.1\r\nHost: ")])
def test_a_score_takes_a_second_longer_at_most_beside_idle_connections(server, first, text):
    """On a busy machine it takes long without them, too."""
    alone = seconds_of_scores(server, first)
    with idle_connections(server, MAX_UNKNOWN + 90, text):
        assert seconds_of_scores(server, first + 5) < 1.0 + 10 * alone


@pytest.mark.slow
def test_connections_that_ask_nothing_or_trickle_in_are_closed(server):
    begin = time.monotonic()
    with (
        connect(server) as idle,
        connect(server, b"GET / HTT") as begun,
        connect(server, b"GET / HTTP/1.1\r\n") as slow,
    ):
        with pytest.raises(OSError):
            while time.monotonic() < begin + PATIENCE:
                slow.sendall(b"x")
                time.sleep(0.2)
        assert idle.recv(1) == b"" and begun.recv(1) == b""
        assert time.monotonic() - begin > SECONDS_TO_ASK - 1


class Connection:
    """A connection as `ConnectionLimit` sees it."""

    def __init__(self, client):
        self.client, self.transport, self.open = client, self, True

    def abort(self):
        self.open = False


def test_who_has_shown_the_token_keeps_the_place():
    limit, known = ConnectionLimit(), Connection("ana")
    limit.opened(known)
    limit.authenticated("ana")
    others = [Connection(i) for i in range(MAX_UNKNOWN + 10)]
    for other in others:
        limit.opened(other)
    assert known.open and [other.open for other in others] == [False] * 10 + [True] * MAX_UNKNOWN
    limit.closed(others[-1])
    limit.opened(Connection("new"))
    assert others[10].open  # there was room
    limit.authenticated("nobody")
    again = [Connection(f"tab {i}") for i in range(MAX_AUTHENTICATED)]
    for tab in again:
        limit.opened(tab)
        limit.authenticated(tab.client)
    assert not known.open and all(tab.open for tab in again)


def test_without_the_limit_unknown_clients_would_stay(monkeypatch):
    """The wrong variant: nobody is ever closed."""

    def still_open():
        limit, others = ConnectionLimit(), [Connection(i) for i in range(MAX_UNKNOWN + 10)]
        for other in others:
            limit.opened(other)
        return sum(other.open for other in others)

    assert still_open() == MAX_UNKNOWN
    monkeypatch.setattr(connections, "MAX_UNKNOWN", 10**9)
    assert still_open() == MAX_UNKNOWN + 10
