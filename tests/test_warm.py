"""Processes forked from a warm one leave, print, and take signals as cold ones do."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from run_tools import PATIENCE, command, environment
from warm import Zygote

SCRIPT = """
import json, os, signal, sys, threading, time
torch_was_there = "torch" in sys.modules
from mpi4py import MPI
what = sys.argv[1]
print(json.dumps({"warm": torch_was_there, "folder": os.getcwd(), "argv": sys.argv,
                  "path": sys.path[0], "mine": os.environ.get("MINE"), "name": __name__,
                  "size": MPI.COMM_WORLD.size,
                  "input": sys.stdin.read() if what == "3" else ""}), flush=True)
print("an error", file=sys.stderr)
if what == "fails":
    raise RuntimeError("as it was told to")
if what == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "waits":
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
    print("waits", flush=True)
    time.sleep(800)
sys.exit(int(what) if what.isdigit() else 0)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def start(script, what, cold=False, ranks=1, **variables):
    words = command(what, ranks=ranks, module=str(script), cold=cold)
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**environment(), **variables}, cwd=script.parent,
    )  # fmt: skip


def ended(process, given=""):
    out, err = process.communicate(given, timeout=PATIENCE)
    assert out, err
    return process.returncode, json.loads(out.splitlines()[0]), err


@pytest.mark.slow
@pytest.mark.parametrize("what", ["3", "fails", "dies"])
def test_it_is_as_a_cold_one(script, what):
    code, said, err = ended(start(script, what, MINE="a"), "some text")
    cold_code, cold_said, cold_err = ended(start(script, what, cold=True, MINE="a"), "some text")
    assert said.pop("warm") and not cold_said.pop("warm")
    assert (code, said) == (cold_code, cold_said)
    assert err.splitlines()[0] == cold_err.splitlines()[0] == "an error"
    assert err.splitlines()[-1] == cold_err.splitlines()[-1]  # of a traceback


def test_the_ranks_of_a_launcher_are_warm(script):
    with start(script, "0", ranks=2) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert out.count('"warm": true') == out.count('"size": 2') == 2, out  # lines may be mixed


def test_a_signal_reaches_it_and_it_dies_with_its_client(script):
    for number, code in ((signal.SIGUSR1, 75), (signal.SIGTERM, -15), (signal.SIGKILL, -9)):
        process = start(script, "waits")
        while process.stdout.readline() != "waits\n":
            assert process.poll() is None, process.stderr.read()
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE)[0] == ""  # the pipe's other end is closed
        assert process.returncode == code


def test_another_environment_of_the_libraries_is_cold(script):
    import sklearn  # noqa: F401  # sets variables: imports of the tests' own process do not count
    import torch  # noqa: F401  # sets one, too

    assert not ended(start(script, "0", HF_HUB_CACHE="elsewhere"))[1]["warm"]
    assert ended(start(script, "0"))[1]["warm"]


def test_it_ends_with_the_tests():
    code = f"import warm; z = warm.Zygote({environment()!r}, []); z.command('a', []); " \
        "print(z._process.pid, z._socket)"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    pid, socket = done.stdout.split()
    end = time.monotonic() + PATIENCE
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pid}") and not os.path.exists(socket)


def test_it_starts_when_it_is_used():
    assert Zygote(environment())._process is None
