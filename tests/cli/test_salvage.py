"""``--salvage`` on the command line: its refusals, its exit codes, and a run that goes on."""

import errno
import shutil

import destroy
import pytest
from run_tools import LATTICE, assert_same, run
from runs_in_progress import begin, config_of, sampled

from omniinput_hpc.cli import salvage as salvage_command
from omniinput_hpc.cli.run import main
from omniinput_hpc.cli.verify import verify_file
from omniinput_hpc.runfile import lock, salvage
from omniinput_hpc.runfile.layout import checkpoint_of

SMALL = ("run.rounds=2", "run.burn_in=1", "sampler.exchanges=1", "sampler.steps=4")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return sampled(tmp_path_factory.mktemp("whole"), *SMALL)


@pytest.fixture
def path(whole, tmp_path):
    for file in (whole, checkpoint_of(whole)):
        shutil.copy(file, tmp_path)
    return tmp_path / "run.h5"


def call(capfd, *arguments):
    code = main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    return code, out, err


def test_it_brings_back_all_rounds(capfd, path, whole, tmp_path):
    destroy.all_metadata(path)
    new = tmp_path / "new.h5"
    code, out, _ = call(capfd, path, "--salvage", new)
    assert code == 0
    assert out == f"{path} -> {new}: 2 of 2 rounds; all agrees\n"
    assert_same(new, whole)
    assert not list(tmp_path.glob("*.lock"))
    code, out, _ = call(capfd, new, "--verify")
    assert code == 0
    assert f"{checkpoint_of(new)}: 2 rounds and 1 of burn-in" in out


def test_what_is_wrong_ends_with_1(capfd, path, tmp_path):
    offset = destroy.offsets(path)["histogram/counts"]
    destroy.overwrite(path, offset, 8, seed=3)
    destroy.superblock(path)
    code, out, _ = call(capfd, path, "--salvage", tmp_path / "new.h5")
    assert code == 1
    assert "WRONG" in out
    assert "problem(s)" in out
    assert (tmp_path / "new.h5").is_file()


def test_refusals(capfd, path, tmp_path):
    new = tmp_path / "new.h5"
    (tmp_path / "there.h5").touch()
    cases = {
        ("none.h5", "--salvage", new): "none.h5: no such run file",
        (path, "--salvage", tmp_path / "there.h5"): "exists; choose another name",
        (path, "--salvage", path): "exists; choose another name",
        (path, "--salvage", tmp_path / "new"): "a run file's name must end with .h5 or .hdf5",
        (path, "--salvage", tmp_path / "no/new.h5"): "is not a folder",
        (tmp_path / "there.h5", "--salvage", new): "has no side file",
        ("--salvage", new): "the following arguments are required: RUN.h5",
        (path, "--salvage", new, "--verify"): "not allowed with argument",
    }
    for arguments, words in cases.items():
        code, _, err = call(capfd, *arguments)
        assert code == 2
        assert words in err
        assert "Traceback" not in err
    assert not new.exists()


def test_a_damaged_side_file_is_told_by_verify(capfd, path):
    destroy.overwrite(checkpoint_of(path), 2000, 8, seed=1)
    code, out, _ = call(capfd, path, "--verify")
    assert code == 1
    assert "second checkpoint: " in out
    assert "its content does not match its checksum; the next start of the run rewrites it" in out


def test_verify_says_where_a_side_file_is_of_another_file(capfd, path, tmp_path):
    begin(config_of(tmp_path / "other", *SMALL)).writer.close()
    shutil.copy(checkpoint_of(tmp_path / "other/run.h5"), checkpoint_of(path))
    code, out, _ = call(capfd, path, "--verify")
    assert code == 0
    assert "does not match the run file; the next start of the run rewrites it" in out


@pytest.mark.slow
def test_on_two_ranks_it_ends_as_if_nothing_had_happened(tmp_path):
    toml, old, new = (tmp_path / name for name in ("l.toml", "run.h5", "new.h5"))
    toml.write_text(LATTICE.format(output=old))
    assert main([str(toml), "--set", f"run.output={tmp_path / 'whole.h5'}"]) == 0
    words = ("--set", "run.writer=mpio", "--set")
    assert run(toml, *words, "run.rounds=3", ranks=2).returncode == 0
    destroy.all_metadata(old)
    stopped = run(toml, *words, "run.rounds=5", ranks=2)
    assert stopped.returncode == 2
    assert "omniinput salvage RUN.h5 NEW.h5" in stopped.stderr
    salvaged = run(old, "--salvage", new, ranks=2)
    assert (salvaged.returncode, salvaged.stdout.count("all agrees")) == (0, 1)
    assert run(new, "--set", "run.rounds=5", "--set", "run.writer=gather").returncode == 0
    assert_same(new, tmp_path / "whole.h5")


def test_rounds_that_are_verified_keep_the_locks_alive(path, tmp_path):
    """Copying and verifying a large file takes longer than a lock without a heartbeat is valid."""
    beats = []
    assert verify_file(path, heartbeat=lambda: beats.append(1))[1] == []
    assert len(beats) == 2
    beats.clear()
    destroy.all_metadata(path)
    salvage_command.salvage_file(path, tmp_path / "new.h5", lambda: beats.append(1))
    assert len(beats) > 2 * 8  # each dataset that has rounds, and their verification


def test_what_another_job_made_meanwhile_stays(capfd, path, tmp_path, monkeypatch):
    """Before the lock is held, and while the new file is verified."""
    new, take, verify = tmp_path / "new.h5", lock.RunLock.take, salvage_command.verify_file
    destroy.all_metadata(path)

    def late(held):
        new.write_text("another job's")
        return take(held)

    monkeypatch.setattr(lock.RunLock, "take", late)
    code, _, err = call(capfd, path, "--salvage", new)
    assert (code, new.read_text()) == (2, "another job's")
    assert "exists; choose another name" in err
    monkeypatch.undo()
    new.unlink()

    def taken_over(candidate, heartbeat):
        (tmp_path / "new.h5.lock").write_text(lock.this_process().text)
        return verify(candidate, heartbeat=heartbeat)

    monkeypatch.setattr(salvage_command, "verify_file", taken_over)
    code, _, err = call(capfd, path, "--salvage", new)
    assert code == 2
    assert "has taken over" in err
    assert not new.exists() and not list(tmp_path.glob("*.salvaged*"))


def test_an_old_file_that_cannot_be_read_is_named(capfd, path, tmp_path, monkeypatch):
    def denied(asked):
        raise PermissionError(errno.EACCES, "Permission denied", str(asked))

    monkeypatch.setattr(salvage, "open_regular", denied)
    code, _, err = call(capfd, path, "--salvage", tmp_path / "new.h5")
    assert code == 2
    assert f"{path} cannot be read: Permission denied" in err


def test_without_room_nothing_is_begun(capfd, path, tmp_path, monkeypatch):
    monkeypatch.setattr(salvage_command.layout, "free_bytes", lambda folder: 1000)
    code, _, err = call(capfd, path, "--salvage", tmp_path / "new.h5")
    assert code == 2
    assert "a new file needs 17.6 kB" in err and f"{tmp_path} has 1 kB free" in err
