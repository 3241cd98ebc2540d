"""Functions by their names: found in the current directory, or one plain message."""

import sys

import pytest

from omniinput_hpc.errors import UserError
from omniinput_hpc.plugins import load_function, source_of


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
