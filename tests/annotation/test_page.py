"""The page's server without a browser: what it refuses, hides, saves and says."""

import asyncio
import errno
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import time

import pytest
from page_server import ROOT, Server, no_room_beyond
from task_files import make_tasks

from omniinput_hpc.annotation.scores import Score, add_score_files, now, read_scores, scores_path
from omniinput_hpc.annotation.security import Tokens, stored_token
from omniinput_hpc.annotation.server import (
    PORTS,
    bind,
    cookie_name,
    default_ports,
    labels_of,
    make_app,
    read_guideline,
)
from omniinput_hpc.annotation.session import order_of
from omniinput_hpc.annotation.tasks import Task, TaskSet, key_path
from omniinput_hpc.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def tasks(folder):
    return make_tasks(folder, 12)


@pytest.fixture(scope="module")
def server(tasks):
    with Server(tasks.path, "ana") as running:
        yield running


def test_the_address_sets_a_cookie_that_other_sites_cannot_send(server):
    status, headers, body = server.call("GET", f"/?token={server.token}", headers={"Cookie": None})
    assert status == 200 and b"<title>" in body
    assert headers["set-cookie"] == f"{server.cookie}; Path=/; HttpOnly; SameSite=Strict"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert b"http://" not in body and b"https://" not in body


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/", {"Cookie": None}),
        ("GET", "/?token=", {"Cookie": None}),
        ("GET", "/?token=wrong", {"Cookie": None}),
        ("GET", "/api/first", {"Cookie": None}),
        ("GET", "/page.js", {"Cookie": "omniinput=wrong"}),
        ("GET", "/api/first?token={token}", {"Cookie": None}),
        ("GET", "/api/first", {"Host": "evil.example"}),
        ("GET", "/api/first", {"Host": "evil.example:{port}"}),
        ("GET", "/api/first", {"Host": "localhost.evil.example:{port}"}),
        ("GET", "/api/first", {"Origin": "http://evil.example"}),
        ("POST", "/api/score", {"Origin": "http://evil.example"}),
        ("POST", "/api/score", {"Origin": "null"}),
        ("POST", "/api/score", {"Origin": "http://localhost:1"}),
        ("POST", "/api/score", {"Origin": None}),
        ("POST", "/api/score", {"Content-Type": "text/plain"}),
        ("POST", "/api/score", {"Cookie": None}),
        ("POST", "/api/undo", {"Origin": None}),
    ],
)
def test_requests_that_are_refused(server, method, path, headers):
    known = {"token": server.token, "port": server.port}
    headers = {k: v if v is None else v.format(**known) for k, v in headers.items()}
    body = {"id": "id0000", "score": 1, "nonce": "12345678"} if method == "POST" else None
    status, answered, text = server.call(method, path.format(**known), body, headers)
    assert status == 403 and json.loads(text)["error"]
    assert (
        "set-cookie" not in answered and "default-src 'none'" in answered["content-security-policy"]
    )
    assert server.get("/api/first")[1]["progress"]["done"] == 0


@pytest.mark.parametrize(
    "body",
    [
        {"id": "other", "score": 0.5},
        {"id": "../../etc/passwd", "score": 0.5},
        {"id": "id0000", "score": 1.5},
        {"id": "id0000", "score": "1"},
        {"id": "id0000", "score": True},
        {"id": "id0000", "score": None},
        {"id": "id0000"},
        {"id": ["id0000"], "score": 0.5},
        {"id": "id0000", "score": 0.5, "seconds": -1},
        {"id": "id0000", "score": 0.5, "seconds": "x"},
        {"id": "id0000", "score": 0.5, "nonce": ""},
        {"id": "id0000", "score": 0.5, "nonce": {}},
    ],
)
def test_a_wrong_score_is_refused_in_words(server, body):
    status, answer = server.post("/api/score", **body)
    assert status == 400 and answer["error"]


@pytest.mark.parametrize("text", ["", "[]", "{", "NaN", '{"score": NaN}', "[" * 3000])
def test_a_body_that_is_no_object(server, text):
    status, _, body = server.call("POST", "/api/score", text)
    assert status == 400 and json.loads(body)["error"]


def test_large_requests_are_refused(server):
    assert server.call("POST", "/api/score", "x" * 5000)[0] == 413
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(
            f"POST /api/score HTTP/1.1\r\nHost: localhost:{server.port}\r\nCookie: {server.cookie}"
            f"\r\nOrigin: http://localhost:{server.port}\r\nContent-Type: application/json\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        raw.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n" + b"10\r\n" + b"x" * 16 + b"\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000)
        assert raw.recv(100).startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    "path",
    ["/../setup.cfg", "/%2e%2e/setup.cfg", "/page/page.js", "/toy.tasks.key.jsonl", "/api/item/999",
     "/api/item/-1", "/api/item/x", "/docs", "/openapi.json"],
)  # fmt: skip
def test_no_path_reaches_the_file_system(server, path):
    status, _, body = server.call("GET", path)
    assert status in (400, 404) and b"root" not in body and len(body) < 100


def test_the_page_tells_nothing_of_z_the_bin_or_others(server, tasks):
    item = server.get("/api/first")[1]["item"]
    assert sorted(item) == ["id", "kind", "png", "position", "prefix", "score", "text"]
    key = key_path(tasks.path).read_text()
    seen = [server.get(f"/api/item/{i}")[1]["item"]["id"] for i in range(12)]
    assert sorted(seen) == sorted(tasks.ids) and seen != sorted(seen) and "log_weight" in key


@pytest.mark.slow
def test_scoring_going_back_undoing_and_resuming(folder):
    tasks = make_tasks(folder, 6, name="resume")
    path = scores_path(tasks.path, "ana")
    with Server(tasks.path, "ana") as server:
        first = server.get("/api/first")[1]["item"]
        _, view = server.post("/api/score", id=first["id"], score=0.25, seconds=2.0)
        assert read_scores(path).by_id() == {first["id"]: 0.25}
        second = view["item"]
        assert second["position"] == 1 and view["progress"]["seconds_left"] == 10.0
        server.post("/api/score", id=second["id"], score=0.5, seconds=4.0)
        assert server.get("/api/item/0")[1]["item"]["score"] == 0.25
        server.post("/api/score", id=first["id"], score=1.0)
        undone = server.post("/api/undo")[1]["item"]
        assert (undone["id"], undone["score"]) == (first["id"], 0.25)
        server.kill()
        server.start()
        nonce = {"nonce": "abcdefgh01"}
        for _ in range(3):  # sent again: counts once
            undone = server.post("/api/undo", **nonce)[1]["item"]
            assert (undone["id"], undone["score"]) == (second["id"], None)
        server.kill()
        server.start()
        assert server.post("/api/undo", **nonce)[1]["item"]["id"] == second["id"]
        assert server.post("/api/undo")[1]["item"]["id"] == first["id"]
        assert server.post("/api/undo")[0] == 400
        for _ in range(2):
            server.post("/api/score", id=first["id"], score=0.75, nonce="1234567890")
    assert server.process.returncode == 0
    assert "taking over the lock" in server.error and "Traceback" not in server.error
    back = read_scores(path)
    assert back.by_id() == {first["id"]: 0.75} and len(back.lines) == 7
    assert not path.with_name(path.name + ".lock").exists()


@pytest.mark.slow
def test_a_full_disk_is_said_and_loses_nothing(folder):
    tasks = make_tasks(folder, 3, name="full")
    path = scores_path(tasks.path, "ana")
    with Server(tasks.path, "ana") as server:
        first = server.get("/api/first")[1]["item"]
        second = server.post("/api/score", id=first["id"], score=0.5)[1]["item"]
        before = path.read_bytes()
        for room in (0, 10):  # nothing fits, or a part of the line
            with no_room_beyond(server.process.pid, len(before) + room):
                status, answer = server.post("/api/score", id=second["id"], score=1, nonce="a" * 8)
            assert status == 507 and answer["error"].startswith(f"not saved in {path}: ")
            assert path.read_bytes() == before
        assert server.get("/api/item/1")[1]["item"]["score"] is None
        assert server.post("/api/score", id=second["id"], score=1, nonce="a" * 8)[0] == 200
    assert read_scores(path, tasks).by_id() == {first["id"]: 0.5, second["id"]: 1.0}


@pytest.mark.slow
def test_the_token_stays_the_same_and_private(folder, tasks):
    with Server(tasks.path, "tok") as server:
        token = server.token
        (file,) = folder.glob("omniinput_hpc/*-tok.token")
        assert file.stat().st_mode & 0o077 == 0
        server.kill()
        server.start()
        assert server.token == token
        server.kill()
        file.chmod(0o644)  # others may have read it
        server.start()
        assert server.token != token


def test_a_new_token_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    old, stored = stored_token("set-ana")
    assert stored and stored_token("set-ana") == (old, True)
    new, stored = stored_token("set-ana", renew=True)
    assert stored and new != old and stored_token("set-ana") == (new, True)


@pytest.mark.slow
def test_a_port_that_somebody_else_holds_makes_the_token_new(tmp_path):
    """An open page has sent its cookie to whoever took the port while the server was down."""
    made, name = make_tasks(tmp_path, 3), f"ana{secrets.token_hex(4)}"
    first = default_ports(cookie_name(made, name))[0]
    with Server(made.path, name, port=0) as server:
        old = server.token
        assert server.port == first and "note: port" not in server.printed
    with socket.create_server(("127.0.0.1", first)), Server(made.path, name, port=0) as server:
        assert server.token != old and server.port != first
        assert f"note: port {first} is held by another process" in server.printed
        new = server.token
    with Server(made.path, name, port=0) as server:
        assert server.token == new and server.port == first  # what the other one saw is of no use
        server.token = old
        assert server.call("GET", "/api/first")[0] == 403


def test_a_failing_disk_is_told_in_json(tmp_path):
    """As `NotSaved`: the page says that it could not save, in place of a lost connection."""
    made = make_tasks(tmp_path, 3)

    class Session:
        def score(self, *_):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    app = make_app(Session(), made, read_guideline(None, "text"), "ana", Tokens("secret", "other"))
    body = json.dumps({"id": "id0000", "score": 0.5, "nonce": "nonce0000"}).encode()
    headers = {
        "host": "localhost:1", "origin": "http://localhost:1", "content-type": "application/json",
        "content-length": str(len(body)), "cookie": f"{cookie_name(made, 'ana')}=secret",
    }  # fmt: skip
    scope = {
        "type": "http", "method": "POST", "path": "/api/score", "query_string": b"",
        "headers": [(k.encode(), v.encode()) for k, v in headers.items()], "client": ("a", 1),
    }  # fmt: skip
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 507
    assert json.loads(sent[1]["body"]) == {"error": "not saved: Input/output error"}


def test_the_port_is_the_annotators_own():
    with bind(None, "set-ana") as first, bind(None, "set-ben") as other:
        taken = first.getsockname()[1]
        assert taken in PORTS and other.getsockname()[1] != taken
        with bind(None, "set-ana") as third:  # taken: the next one
            assert third.getsockname()[1] != taken
    with bind(None, "set-ben"), bind(None, "set-ana") as again:
        assert again.getsockname()[1] == taken


def refused(*arguments):
    done = subprocess.run(
        [sys.executable, str(ROOT / "analysis/annotate.py"), *map(str, arguments)],
        capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.slow
def test_bad_input_is_one_plain_line(server, tasks, folder):
    words = refused(tasks.path, "--annotator", "ana")
    assert "is being written by another process" in words
    assert f"port {server.port} cannot be used: it is taken" in refused(
        tasks.path, "--annotator", "new", "--port", server.port
    )
    assert not scores_path(tasks.path, "new").with_suffix(".jsonl.lock").exists()
    assert "letters, digits" in refused(tasks.path, "--annotator", "../x")
    assert "no such file" in refused(folder / "none.tasks.jsonl", "--annotator", "x")
    assert "is not a task file" in refused(key_path(tasks.path), "--annotator", "x")
    words = refused(tasks.path, "--annotator", "x", "--guideline", "none.md")
    assert "none.md: no such file (expected a guideline)" in words


def test_scores_of_another_run_are_refused_and_kept(folder):
    tasks = make_tasks(folder, 3, name="mine")
    path = scores_path(tasks.path, "ana")
    path.write_text('{"id": "foreign", "score": 1, "when": "now", "annotator": "ana"}\n')
    assert "the scores of another task file?" in refused(tasks.path, "--annotator", "ana")
    assert "foreign" in path.read_text()


@pytest.mark.slow
def test_the_guideline_is_shown_as_text_where_it_holds_html(folder):
    tasks = make_tasks(folder, 2, name="guide")
    guideline = folder / "g.md"
    guideline.write_text("# Rules\n<script>alert(1)</script>\n\n![x](http://x/y.png) **b**")
    with Server(tasks.path, "ana", guideline=guideline) as server:
        body = server.call("GET", "/")[2].decode()
        assert "<h1>Rules</h1>" in body and "<strong>b</strong>" in body
        assert "<script>alert" not in body and "<img src" not in body
        item = server.get("/api/first")[1]["item"]
        server.post("/api/score", id=item["id"], score=0.5)
    (line,) = read_scores(scores_path(tasks.path, "ana")).lines
    assert line.guideline and len(line.guideline) == 12


@pytest.mark.slow
def test_the_order_is_the_annotators_own_and_repeats_are_apart(folder):
    texts = [f"t{i}" for i in range(60)] + [f"t{i}" for i in range(15)]
    made = [Task(f"{i:x}", text=text) for i, text in enumerate(texts)]
    tasks = TaskSet(folder, "set", "text", made)
    orders = {name: order_of(tasks, name) for name in ("ana", "ben")}
    assert orders["ana"] == order_of(tasks, "ana") != orders["ben"]
    for order in orders.values():
        assert sorted(t.id for t in order) == sorted(t.id for t in made)
        place = {}
        for i, task in enumerate(order):
            assert i - place.get(task.text, -99) >= 18
            place[task.text] = i


@pytest.mark.slow
def test_saving_is_quick(folder):
    tasks = make_tasks(folder, 60, name="quick")
    with Server(tasks.path, "ana") as server:
        item, took = server.get("/api/first")[1]["item"], []
        while item:
            begin = time.perf_counter()
            item = server.post("/api/score", id=item["id"], score=0.5)[1]["item"]
            took.append(time.perf_counter() - begin)
    print(f"request, fsync and answer: median {1e3 * statistics.median(took):.1f} ms")
    assert len(read_scores(scores_path(tasks.path, "ana")).by_id()) == 60


def test_the_progress_of_all_has_a_token_of_its_own(folder):
    tasks = make_tasks(folder, 12, name="progress")
    lines = [Score(id=f"id{i:04d}", score=0.5, when=now(), annotator="ben") for i in range(3)]
    add_score_files(tasks, {"ben": lines})
    with Server(tasks.path, "ana") as running:
        running.post("/api/score", id="id0001", score=0.25, seconds=2.0)
        address = f"/progress?token={running.progress_token}"
        status, headers, body = running.call("GET", address, headers={"Cookie": None})
        text = body.decode()
        assert status == 200 and "default-src 'none'" in headers["content-security-policy"]
        assert "set-cookie" not in headers
        assert "<td>ana</td>" in text and "1 of 12" in text and "3 of 12" in text
        assert "0.25" not in text and "0.5<" not in text  # no score
        for wrong in ("/progress", "/progress?token=", f"/progress?token={running.token}"):
            assert running.call("GET", wrong)[0] == 403
        for other in ("/", "/api/first", "/page.js"):
            opened = f"{other}?token={running.progress_token}"
            assert running.call("GET", opened, headers={"Cookie": None})[0] == 403
            stolen = {"Cookie": running.cookie.partition("=")[0] + "=" + running.progress_token}
            assert running.call("GET", other, headers=stolen)[0] == 403


def test_the_shipped_guidelines_show_their_tables():
    for file in (ROOT / "inputs/guidelines").glob("*.md"):
        assert ("| ---" in file.read_text()) == ("<table>" in read_guideline(file, "text").html)


def test_a_question_and_labels_are_shown_and_change_the_version(folder, tmp_path):
    file = tmp_path / "guideline.md"
    file.write_text("# Gr\u00fc\u00dfe\n\ntwo\n", encoding="utf-8")
    saved = tmp_path / "saved.md"
    saved.write_bytes("# Gr\u00fc\u00dfe\r\n\r\ntwo\r\n".encode("utf-16"))
    assert read_guideline(saved, "text") == read_guideline(file, "text")
    plain = read_guideline(None, "text")
    asked = read_guideline(None, "text", "Is it {guideline} <b>English</b>?", ("no", 'y"es'))
    assert asked.version != plain.version and asked.html == plain.html
    app = make_app(
        None, make_tasks(folder, 3, name="asked"), asked, "ana", Tokens("secret", "other")
    )
    html = app.routes[0].endpoint.__self__._html
    assert "Is it {guideline} &lt;b&gt;English&lt;/b&gt;?" in html
    assert "[&quot;no&quot;, &quot;y\\&quot;es&quot;]" in html


def test_labels_from_the_lowest_to_the_highest():
    assert labels_of("no, partly,yes") == ("no", "partly", "yes")
    for wrong in ("", "yes", "a,a", "a,,b", ",".join("abcdefghijk"), "a," + "b" * 41):
        with pytest.raises(UserError, match="--labels"):
            labels_of(wrong)
