"""The explorer: what its server refuses and answers, its command, and its page in a real browser.

Screenshots are left in the folder that OMNIINPUT_SCREENSHOTS names.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from browser import MISSING, browser, problems, resize, wait
from hostile_words import write_model_folder
from run_files import write_run
from run_tools import ROOT
from script_tools import is_plain
from starlette.testclient import TestClient

from omniinput_hpc.cli.verbs.explore import cookie_name
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.report.page import page
from omniinput_hpc.report.recorded import PAGE, Recorded
from omniinput_hpc.report.served import SCRIPTS, make_app
from omniinput_hpc.runfile.reader import open_run

ORIGIN = "http://localhost:1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a run of hostile words."""
    folder = tmp_path_factory.mktemp("explore")
    write_model_folder(folder / "none")
    write_run(folder / "one.h5", walkers=16, rounds=4)
    return folder


@pytest.fixture
def client(folder, monkeypatch):
    """Return a client of the application that has not shown the token."""
    monkeypatch.chdir(folder)
    with open_run("one.h5") as run:
        html = page("All inputs", [], SCRIPTS)
        app = make_app(html, Recorded(run, density_of_run(run.data)), "explore-one", "secret")
        yield TestClient(app, base_url=ORIGIN)


@pytest.mark.parametrize(
    "path", ["/", "/?token=wrong", "/api/bin?z=1", "/api/bin?token=secret&z=1"]
)
def test_without_the_token_nothing_is_shown(client, path):
    answer = client.get(path)
    assert answer.status_code == 403 and "token" in answer.json()["error"]


def test_other_hosts_and_sites_are_refused(client):
    client.get("/?token=secret")
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        assert client.get("/api/bin?z=1", headers=headers).status_code == 403
    assert client.post("/api/bin", headers={"origin": ORIGIN}).status_code == 403


def test_the_page_allows_its_own_script_and_its_own_server_alone(client):
    answer = client.get("/?token=secret")
    allowed = answer.headers["content-security-policy"]
    assert "script-src 'sha256-" in allowed and "connect-src 'self'" in allowed
    assert "frame-ancestors 'none'" in allowed and "default-src 'none'" in allowed
    assert allowed.removesuffix("; frame-ancestors 'none'") in answer.text
    assert "connect-src" not in page("All inputs", [], ["page.js"])


def test_bins_searches_and_extremes(client):
    client.get("/?token=secret")
    first = client.get("/api/bin", params={"z": 2.0}).json()
    assert set(first) == {"said", "inputs", "kind", "next"} and "recorded samples" in first["said"]
    assert set(first["inputs"][0]) == {"z", "shown", "note"} and len(first["inputs"]) == PAGE
    more = client.get("/api/bin", params={"z": 2.0, "start": first["next"]}).json()
    assert more["inputs"] and more["inputs"] != first["inputs"]
    found = client.get("/api/search", params={"words": "ANN.B@"}).json()
    assert all("ann.b@example.com" in one["shown"] for one in found["inputs"])
    low, high = (client.get("/api/extremes", params={"end": e}).json() for e in ("low", "high"))
    assert float(low["inputs"][0]["z"]) < float(high["inputs"][0]["z"])


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("bin", "z: expected a number"),
        ("bin?z=x", "z: expected a number"),
        ("bin?z=nan", "z is not a number"),
        ("bin?z=1&start=-1", "start: expected the number of a sample"),
        ("bin?z=1&start=nan", "start: expected the number of a sample"),
        ("search", "give words to search for"),
    ],
)
def test_a_wrong_request_is_refused_in_words(client, path, words):
    client.get("/?token=secret")
    answer = client.get(f"/api/{path}")
    assert answer.status_code == 400 and words in answer.json()["error"]


def test_each_run_file_has_its_own_cookie(folder):
    assert cookie_name(folder / "one.h5") != cookie_name(folder / "two.h5")
    assert re.fullmatch(r"[a-z0-9-]+", cookie_name(Path("a b;=.h5")))


def started(folder, *more):
    """Start the command; return its process and all that it printed before it serves."""
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-u", str(ROOT / "analysis/explore.py"), "one.h5", *more],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    printed = ""
    for line in process.stdout:
        printed += line
        if line.startswith("Ctrl-C"):
            return process, printed
    raise RuntimeError(process.stderr.read())


@pytest.mark.slow
def test_the_command_says_where_and_ends_without_a_trace(folder):
    before = {path.name for path in folder.iterdir()}
    process, printed = started(folder)
    port = re.search(r"open    http://localhost:(\d+)/\?token=\S{32}\n", printed).group(1)
    assert f"ssh -N -L {port}:127.0.0.1:{port} " in printed
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=200)
    assert (process.returncode, err) == (0, "")
    assert {path.name for path in folder.iterdir()} - before <= {"omniinput_hpc"}  # the token


def test_mistakes_are_one_plain_line(folder, inside, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, word in [
            (["missing.h5"], "missing.h5"),
            (["one.h5", "--port", port], f"port {port} cannot be used: it is taken"),
            (["one.h5", "--per-bin", "0"], "--per-bin"),
            (["one.h5", "--mask", "--token-losses"], "--mask"),
        ]:
            code, _, err = inside("explore.py", *arguments)
            assert is_plain(code, err, word), err


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_in_a_browser(folder, tmp_path):
    process, printed = started(folder)
    address = re.search(r"http://localhost:\d+/", printed)[0]
    try:
        with browser(tmp_path) as driver:
            driver.get(re.search(r"http://\S+", printed)[0])
            explored(driver)
            assert problems(driver) == []
            assert driver.execute_script("return window.injected") is None
            fetched = "return performance.getEntriesByType('resource').map(e => e.name)"
            names = driver.execute_script(fetched)
            assert len(names) >= 4
            assert all(name.startswith((address, "data:")) for name in names)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=200)


def explored(driver):
    """Click a bin, read on, search, and list the lowest outputs."""
    press = (
        "[...document.querySelectorAll('.all button')].find(b => b.textContent === arguments[0])"
    )
    listed = "return [...document.querySelectorAll('.all li .text')].map(one => one.textContent)"

    def asked(script, *values):
        driver.execute_script(script, *values)
        said = "return document.querySelector('.all > p.soft').textContent"
        busy = "return document.querySelector('.all ul').ariaBusy"
        wait(lambda: driver.execute_script(busy) == "false")
        return driver.execute_script(said), driver.execute_script(listed)

    said, texts = asked("""
        const svg = document.querySelector("figure[data-marks] svg");
        const area = svg.getBoundingClientRect();
        const at = {clientX: area.left + 50, clientY: area.top + area.height / 2, bubbles: true};
        svg.dispatchEvent(new PointerEvent("pointermove", at));
        svg.dispatchEvent(new MouseEvent("click", at));
    """)
    assert "recorded samples" in said and len(texts) == PAGE
    point = "return document.querySelector('figure[data-marks] .said p').textContent"
    assert driver.execute_script(point).split(":")[0] == said.split(":")[0]
    more = asked(f"{press}.click()", "More")[1]
    assert more[:PAGE] == texts and len(more) > PAGE
    said, texts = asked(
        f"document.querySelector('.all .search').value = 'ANN.B@'; {press}.click()", "Search"
    )
    assert "recorded samples searched; inputs shown: " in said and all(
        "ann.b@" in text for text in texts
    )
    said, texts = asked(f"{press}.click()", "lowest z")
    assert "lowest z" in said and texts
    said, texts = asked(
        f"document.querySelector('.all .search').value = 'nobody'; {press}.click()", "Search"
    )
    assert said.endswith("recorded samples searched; inputs shown: 0") and not texts
    overflow = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
    for width in (1280, 390):
        resize(driver, width, 900)
        assert driver.execute_script(overflow) <= 0, width
        if os.environ.get("OMNIINPUT_SCREENSHOTS"):
            pictures = Path(os.environ["OMNIINPUT_SCREENSHOTS"])
            pictures.mkdir(parents=True, exist_ok=True)
            driver.save_screenshot(str(pictures / f"explorer-{width}.png"))
