"""Functions by their names: found in the current directory, or one plain message."""

import gc
import logging
import os
import signal
import subprocess
import sys

import pytest
from run_tools import environment

from omniinput_hpc.errors import UserError
from omniinput_hpc.plugins import (
    call,
    collect_as_usual,
    collect_rarely,
    load_function,
    source_of,
)


def test_functions_are_found_or_the_message_says_why_not(tmp_path, monkeypatch):
    (tmp_path / "my_functions.py").write_text("def half(x):\n    return x / 2\nnumber = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_function("my_functions:half", "--rule")(3) == 1.5
    for name, message in [
        ("half", '--rule half: expected "module:function"'),
        ("my_functions:", "module:function"),
        ("no_such_module:half", "cannot import no_such_module"),
        ("my_functions:other", "no function other"),
        ("my_functions:number", "no function number"),
    ]:
        with pytest.raises(UserError, match=message):
            load_function(name, "--rule")


def test_the_source_of_a_function_is_known_by_a_hash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_source.py").write_text("raise RuntimeError('imported')\n")
    found = source_of("my_source:make")
    assert found.startswith("my_source.py (sha256 ") and found == source_of("my_source:other")
    (tmp_path / "my_source.py").write_text("raise RuntimeError('imported') \n")
    assert source_of("my_source:make") != found
    assert source_of("no_such_module_here:make") == source_of("sys:exit") == ""


MEDDLING = """
import logging, os, signal
os.chdir("/")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
logging.disable(logging.CRITICAL)
logging.getLogger("omniinput_hpc").disabled = True
logging.getLogger("omniinput_hpc").setLevel(logging.CRITICAL)
logging.getLogger("omniinput_hpc").handlers.clear()
def f(**_):
    exec(open(__file__).read().partition("def f")[0])
    return os.getcwd()
"""


def test_what_a_module_changes_in_the_process_is_put_back(tmp_path, monkeypatch):
    """While it is imported, and when its function makes something."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_meddling.py").write_text(MEDDLING)
    log, seen = logging.getLogger("omniinput_hpc"), []
    handler = logging.Handler()
    handler.emit = seen.append
    monkeypatch.setattr(log, "handlers", [handler])
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
    before = [signal.getsignal(n) for n in numbers]
    for act in (
        lambda: load_function("my_meddling:f", "--rule"),
        lambda: call("my_meddling:f", "model.factory =", "model.options", {}),
    ):
        assert act() is not None
        assert os.getcwd() == str(tmp_path)
        assert [signal.getsignal(n) for n in numbers] == before
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
        log.warning("heard")
    assert len(seen) == 2 and call("my_meddling:f", "", "", {}) == "/"


def test_a_module_that_ends_the_program_is_bad_input(tmp_path, monkeypatch):
    """Else its own code, perhaps 0, would be the exit code of the run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_script.py").write_text("import sys\ndef f(x): pass\nsys.exit()\n")
    with pytest.raises(UserError, match="importing my_script ends the program"):
        load_function("my_script:f", "--rule")


def test_files_that_own_code_leaves_open_are_written(tmp_path):
    """The program skips Python's last garbage collection, which closes those in cycles."""
    (tmp_path / "my_log.py").write_text(
        "class Log:\n    def __init__(self):\n        self.file, self.me = open('log', 'w'), self\n"
        "def f(x): pass\nlog = Log()\nlog.file.write('kept')\n"
    )
    code = (
        "from omniinput_hpc.plugins import *\ncollect_rarely()\n"
        "load_function('my_log:f', '--rule')\nkeep_imports()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), check=True)
    assert (tmp_path / "log").read_text() == "kept"


def test_garbage_is_collected_as_usual_or_as_the_user_chose():
    collect_rarely()
    collect_as_usual()  # a test before this one may have called a command
    usual = gc.get_threshold()
    collect_rarely()
    assert gc.get_threshold()[0] > 10 * usual[0]
    collect_as_usual()
    assert gc.get_threshold() == usual
    gc.set_threshold(77)
    collect_as_usual()
    assert gc.get_threshold()[0] == 77
    gc.set_threshold(*usual)
