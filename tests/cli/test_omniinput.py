"""The one command: every verb's help, the same flags for the same things, the same code behind."""

import argparse
import shlex
import subprocess
import sys
from functools import partial
from importlib import import_module

import pytest
from run_files import write_run
from run_tools import ROOT, environment, run

from omniinput_hpc import __version__
from omniinput_hpc.cli import omniinput
from omniinput_hpc.cli import run as launch
from omniinput_hpc.cli.omniinput import GROUPS, VERBS, WITHOUT_MPI, main
from omniinput_hpc.parallel import signals
from omniinput_hpc.parallel.alone import Alone

OFFLINE = [name for name, verb in VERBS.items() if not verb.module]
BY_PATH = {"census", "enumerate", "rescore", "test-sets", "benchmark"}


@pytest.fixture
def keep_signals(monkeypatch):
    """Leave the test's own signal handlers alone."""
    for name in ("install", "ignore"):
        monkeypatch.setattr(signals.request, name, lambda: None)


class Found(Exception):
    """Carries a verb's parser out of its main."""


@pytest.fixture
def parser_of(monkeypatch, keep_signals):
    """Return a way to get a verb's parser."""

    def find(name):
        def catch(parser, *_):
            raise SystemExit(Found(parser))

        with monkeypatch.context() as patch, pytest.raises(SystemExit) as left:
            patch.setattr(argparse.ArgumentParser, "parse_args", catch)
            # what ends a command that runs on ranks is its own exit code: look before that
            if VERBS[name].module == omniinput.RUN:
                command = launch.OTHERS.get(name) or partial(launch._run, verb=name)
                command(Alone(), [], program=f"omniinput {name}")
            elif name in ("census", "enumerate", "init", "rescore"):
                module = import_module(VERBS[name].module)
                module._arguments(Alone(), [], f"omniinput {name}")
            else:
                main([name])
        return left.value.code.args[0]

    return find


def test_commands_of_one_process_are_not_listed_with_those_for_mpirun():
    assert set(GROUPS["Runs (also under mpirun)"]) == {"run", "rescore", "enumerate", "census"}


@pytest.mark.parametrize("name", VERBS)
def test_a_help_has_an_example_that_parses_and_tells_defaults(name, parser_of):
    parser = parser_of(name)
    text = parser.format_help()
    assert parser.prog == f"omniinput {name}"
    assert "--version" in text
    example = text.partition("example:\n")[2].strip()
    assert example.startswith(f"omniinput {name}"), text
    parser.parse_args(shlex.split(example)[2:])
    for action in parser._actions:
        what = f"{name} {action.option_strings or action.dest}"
        assert action.help, what
        silent = action.default in (None, False, argparse.SUPPRESS) or action.default == []
        if action.option_strings and not silent and action.dest != "on_damage":
            assert "default" in action.help, what


def test_a_flag_means_one_thing(parser_of):
    """One type and one number of words, whichever verb has it."""
    kinds = {}
    for name in VERBS:
        for action in parser_of(name)._actions:
            for flag in action.option_strings:
                kind = (action.type, action.nargs, type(action))
                kinds.setdefault(flag, {}).setdefault(kind, []).append(name)
    different = {flag: found for flag, found in kinds.items() if len(found) > 1}
    # --range and --test-sets are repeated, one for each run, where there are several
    assert set(different) <= {"--range", "--per-bin", "--test-sets"}, different


@pytest.mark.parametrize("name", [n for n in OFFLINE])
def test_a_script_calls_the_verbs_code(name):
    script = ROOT / "analysis" / f"{name.replace('-', '_')}.py"
    text = script.read_text(encoding="utf-8")
    assert f"from omniinput_hpc.cli.verbs.{script.stem} import main\n" in text
    assert len(text.splitlines()) < 20


def test_every_script_has_a_verb():
    scripts = {p.stem.replace("_", "-") for p in (ROOT / "analysis").glob("[a-z]*.py")}
    assert scripts == set(OFFLINE)
    modules = {p.stem for p in (ROOT / "omniinput_hpc/cli/verbs").glob("[a-z]*.py")}
    assert modules == {name.replace("-", "_") for name in (*OFFLINE, *WITHOUT_MPI)}


def test_a_verb_writes_what_the_script_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "toy.h5", walkers=16)
    assert main(["reweight", "toy.h5"]) == 0
    printed = capsys.readouterr().out
    table = (tmp_path / "toy.density.csv").read_bytes()
    (tmp_path / "toy.density.csv").unlink()
    script = [sys.executable, str(ROOT / "analysis/reweight.py"), "toy.h5"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=400, check=False)
    assert (done.returncode, done.stdout) == (0, printed)
    assert (tmp_path / "toy.density.csv").read_bytes() == table


def test_version_list_and_mistakes(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"omniinput_hpc {__version__}\n"
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {name} " in listed for name in VERBS)
    for words, said in (
        ([], "no command given"),
        (["rewiegt"], "unknown command rewiegt; did you mean: reweight"),
        (["inputs/toy.toml"], "did you mean: run inputs/toy.toml"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err
    assert main(["reweight", "no.h5"]) == 2
    assert capsys.readouterr().err.startswith("error: no.h5")


def test_underscores_are_read_as_hyphens(capsys):
    with pytest.raises(SystemExit) as left:
        main(["precision_recall", "--help"])
    assert left.value.code == 0
    assert "usage: omniinput precision-recall" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "heavy"),
    [("", "numpy torch mpi4py h5py"), ("reweight ", "matplotlib torch mpi4py pandas")],
)
def test_help_imports_nothing_heavy(words, heavy):
    code = (
        "import atexit, sys, omniinput_hpc.cli.omniinput as o; "
        f"atexit.register(lambda: print([m for m in '{heavy}'.split() if m in sys.modules])); "
        f"o.main('{words}--help'.split())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=400
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


NO_MPI = {
    "mpi4py is not installed: python -m pip install '.[run]'":
        ModuleNotFoundError("No module named 'mpi4py'", name="mpi4py"),
    "mpi4py finds no MPI library (libmpi.so.12: cannot open shared object file)":
        ImportError("libmpi.so.12: cannot open shared object file"),
    "python -m pip install mpich": RuntimeError("cannot load MPI library"),
}  # fmt: skip


@pytest.mark.parametrize("said", NO_MPI)
def test_without_mpi_a_run_file_is_verified_and_a_run_says_what_to_install(
    said, tmp_path, monkeypatch, capsys, keep_signals
):
    write_run(tmp_path / "toy.h5", walkers=16)

    def without_mpi(name):
        if name == omniinput.RUN:
            raise NO_MPI[said]
        return import_module(name)

    monkeypatch.setattr(omniinput, "import_module", without_mpi)
    assert main(["verify", str(tmp_path / "toy.h5")]) in (0, 1)
    assert "toy.h5" in capsys.readouterr().out
    assert main(["salvage", str(tmp_path / "toy.h5"), str(tmp_path / "new.h5")]) == 2
    assert "toy.h5.checkpoint" in capsys.readouterr().err
    assert main(["run", "my.toml"]) == 2
    assert said in capsys.readouterr().err


def test_another_error_of_an_import_is_ours_and_keeps_its_traceback(monkeypatch, keep_signals):
    def broken(name):
        raise ImportError("cannot import name 'x'")

    monkeypatch.setattr(omniinput, "import_module", broken)
    with pytest.raises(ImportError, match="cannot import name"):
        main(["run", "my.toml"])


@pytest.mark.slow
def test_verbs_on_ranks_and_by_the_module(tmp_path, lattice_toml):
    output = tmp_path / "lattice.h5"
    (tmp_path / "lattice.toml").write_text(lattice_toml.format(output=output))
    checked = run("check", tmp_path / "lattice.toml", cwd=tmp_path)
    assert checked.returncode == 0 and not output.exists(), checked.stderr
    by_flag = run(tmp_path / "lattice.toml", "--check", cwd=tmp_path)
    plans = [[line for line in done.stderr.splitlines() if "rungs" in line]
             for done in (checked, by_flag)]  # fmt: skip
    assert plans[0] == plans[1] and plans[0]
    done = run("run", tmp_path / "lattice.toml", cwd=tmp_path)
    assert done.returncode == 0 and output.exists(), done.stderr
    again = run(tmp_path / "lattice.toml", cwd=tmp_path)
    assert "nothing to do" in again.stderr
    verified = run("verify", output, cwd=tmp_path)
    assert (verified.returncode, "all agrees" in verified.stdout) == (0, True), verified.stderr
    version = run("--version", cold=True)
    assert version.stdout == f"omniinput_hpc {__version__}\n"
