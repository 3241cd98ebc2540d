"""The lock beside a run file: one writer at a time, and a dead writer's lock is taken over."""

import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import slow_models
from contenders import contend
from run_tools import (
    PATIENCE,
    ROOT,
    command,
    environment,
    run,
    running,
    signal_all,
    wait_for_rounds,
)
from slow_models import held

from omniinput_hpc.cli import run as launch
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import lock
from omniinput_hpc.runfile.lock import Owner, RunLock, parse, this_process, why_stale
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import build


@pytest.fixture
def output(tmp_path):
    return tmp_path / "run.h5"


@pytest.fixture
def sidecar(tmp_path):
    return tmp_path / "run.h5.lock"


@pytest.fixture
def toml(tmp_path, output, lattice_toml):
    path = tmp_path / "lattice.toml"
    path.write_text(lattice_toml.format(output=output))
    return path


def dead_pid():
    """Return the number of a process that has just ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def set_age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then))


def only_the_run_is_left(folder):
    names = ["lattice.toml", "run.h5", "run.h5.checkpoint"]
    return sorted(p.name for p in folder.iterdir()) == names


ME = Owner(
    "77",
    2,
    "node1",
    os.getpid(),
    this_process().started,
    this_process().namespace,
    this_process().boot,
    "me",
)


@pytest.mark.parametrize(
    ("changes", "age", "reason"),
    [
        ({"restarts": 1, "host": "node2"}, 0, "requeued"),
        ({"restarts": 2, "host": "node2"}, 599, None),
        ({"restarts": 3, "host": "node2"}, 0, None),
        ({"restarts": 1, "host": "node2", "job": "76"}, 0, None),
        ({"restarts": 1, "host": "node2", "job": ""}, 0, None),
        ({"host": "node2"}, 601, "no heartbeat for 10 min"),
        ({}, 599, None),  # this very process
        ({"pid": 1, "started": ""}, 0, "has ended"),  # started at another time
        ({"pid": dead_pid()}, 0, "has ended"),
        ({"pid": dead_pid(), "host": "node2"}, 0, None),
        ({"pid": dead_pid(), "namespace": "pid:[1]"}, 0, None),  # another container's
        ({"started": "1"}, 0, "has ended"),  # our pid, used before by another
        ({"boot": "older"}, 1e9, "host has been restarted"),
        ({"boot": "other"}, 0, None),  # a heartbeat since we booted: a host of the same name
    ],
)
def test_staleness(changes, age, reason):
    found = why_stale(replace(ME, **changes), age, ME)
    assert (found is None) if reason is None else (reason in found)


def test_a_zombie_process_has_ended():
    process = subprocess.Popen([sys.executable, "-c", ""])
    while lock._process(process.pid)[0] not in ("Z", ""):
        time.sleep(0.01)
    os.kill(process.pid, 0)  # it still has a number
    assert "has ended" in why_stale(replace(ME, pid=process.pid), 0, ME)
    process.wait()


def test_a_requeued_job_takes_its_lock_over(output, sidecar, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    sidecar.write_text(replace(ME, job="4711", restarts=0, host="node2").text)
    with pytest.raises(UserError, match=r"process .* on host node2, SLURM job 4711"):
        RunLock(output).take()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert RunLock(output).take() == sidecar.read_text()
    assert parse(sidecar.read_text()).restarts == 1


def test_a_lock_of_another_host_without_heartbeat_is_taken_over(output, sidecar, caplog):
    sidecar.write_text(replace(ME, host="node2").text)
    with pytest.raises(UserError):
        RunLock(output).take()
    set_age(sidecar, 700)
    logging.getLogger("omniinput_hpc").propagate = True
    with caplog.at_level(logging.INFO, "omniinput_hpc"):
        RunLock(output).take()
    assert "taking over the lock" in caplog.text
    assert "on host node2, SLURM job 77: no heartbeat for 12 min" in caplog.text
    assert parse(sidecar.read_text()).pid == os.getpid()


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"pid": -1}', "[" * 9000])
def test_an_unfinished_lock_is_waited_for_and_then_taken_over(text, output, sidecar, monkeypatch):
    assert parse(text) is None
    monkeypatch.setattr(lock, "UNFINISHED_AFTER", 0.5)
    begin = time.monotonic()
    sidecar.write_text(text)
    RunLock(output).take()
    assert time.monotonic() - begin > 0.4
    assert parse(sidecar.read_text()).pid == os.getpid()
    assert [p.name for p in sidecar.parent.iterdir()] == ["run.h5.lock"]


@pytest.mark.parametrize("pid", ["dead", "alive"])
def test_a_claim_of_a_killed_process_is_removed(pid, output, sidecar, monkeypatch):
    monkeypatch.setattr(lock, "UNFINISHED_AFTER", 0.5 if pid == "alive" else float("inf"))
    begin = time.monotonic()
    stale = replace(this_process(), pid=dead_pid()).text
    sidecar.write_text(stale)
    claim = lock._claim_of(sidecar, stale)
    claim.write_text(stale if pid == "dead" else this_process().text)
    RunLock(output).take()
    assert pid == "dead" or time.monotonic() - begin > 0.4
    assert [p.name for p in sidecar.parent.iterdir()] == ["run.h5.lock"]


def test_heartbeats(output, sidecar, monkeypatch):
    mine = RunLock(output)
    mine.take()
    set_age(sidecar, 500)
    mine.heartbeat()
    assert time.time() - sidecar.stat().st_mtime > 400  # not yet
    monkeypatch.setattr(lock, "HEARTBEAT_EVERY", 0.0)
    mine.heartbeat()
    assert time.time() - sidecar.stat().st_mtime < 100
    set_age(sidecar, 500)
    assert mine.keep()
    assert time.time() - sidecar.stat().st_mtime < 100
    assert RunLock(output, acting=False).keep()  # other ranks leave it alone


def test_a_lock_that_was_removed_is_made_again_and_one_that_was_taken_is_lost(output, sidecar):
    mine = RunLock(output)
    text = mine.take()
    sidecar.unlink()
    assert mine.keep()
    assert sidecar.read_text() == text
    other = replace(ME, host="node9", token="other").text
    sidecar.write_text(other)
    assert not mine.keep()
    assert "process" in str(mine.lost())
    assert "on host node9" in str(mine.lost())
    mine.release()
    assert sidecar.read_text() == other
    assert [p.name for p in sidecar.parent.iterdir()] == ["run.h5.lock"]


def test_a_full_disk_can_still_release(output, sidecar, monkeypatch):
    mine = RunLock(output)
    mine.take()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lock, "_create", full)
    mine.release()
    assert not sidecar.exists()
    with pytest.raises(UserError, match="cannot be created: No space left"):
        RunLock(output).take()


def test_two_names_of_one_file_share_a_lock(output, sidecar, tmp_path):
    output.write_text("")
    (tmp_path / "link.h5").symlink_to(output)
    RunLock(tmp_path / "link.h5").take()
    with pytest.raises(UserError):
        RunLock(output).take()


@pytest.mark.slow
@pytest.mark.parametrize("left_behind", [False, True])
@pytest.mark.parametrize("n_starters", [2, 4])
def test_of_several_starters_one_wins(left_behind, n_starters, output, sidecar):
    n = 60
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(n_starters + 1), context.Queue()
    starters = [
        context.Process(target=contend, args=(output, barrier, results, n), daemon=True)
        for _ in range(n_starters)
    ]
    for process in starters:
        process.start()
    stale, outcomes = replace(this_process(), pid=dead_pid()), []
    for i in range(n):
        assert list(output.parent.iterdir()) == []
        if left_behind:
            sidecar.write_text(replace(stale, token=str(i)).text)
        for _ in range(3):
            barrier.wait(timeout=PATIENCE)
        outcomes.append(sorted(results.get(timeout=PATIENCE) for _ in range(n_starters)))
        barrier.wait(timeout=PATIENCE)
    assert outcomes == [["refused"] * (n_starters - 1) + ["taken"]] * n
    for process in starters:
        process.join(timeout=PATIENCE)


SLOW = ["--set", "run.rounds=100000"]


def start(toml, *words, ranks=1):
    return subprocess.Popen(
        command(toml, *SLOW, *words, ranks=ranks),
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=ROOT,
        start_new_session=True,
    )


def quiet_since(path):
    """For how many seconds a file has not been written to."""
    return time.time() - path.stat().st_mtime


def test_good_ends_leave_no_lock(toml, tmp_path, monkeypatch):
    monkeypatch.setattr(launch.request, "reason", None)
    made = []
    take = RunLock.take
    monkeypatch.setattr(RunLock, "take", lambda self: made.append(take(self)) or made[-1])
    assert launch.main([str(toml), "--check"]) == 0
    assert not made
    assert launch.main([str(toml), "--max-walltime", "0.001"]) == 75
    monkeypatch.setattr(launch.request, "reason", None)
    assert launch.main([str(toml)]) == 0
    assert len(made) == 2
    assert only_the_run_is_left(tmp_path)
    assert launch.main([str(toml)]) == 0  # complete: nothing to write
    assert len(made) == 2

    def cannot(*arguments):
        raise UserError("found out late")

    monkeypatch.setattr("omniinput_hpc.sampling.build.prepare_file", cannot)
    assert launch.main([str(toml), "--set", "run.rounds=6"]) == 2
    assert len(made) == 3
    assert only_the_run_is_left(tmp_path)


@pytest.mark.slow
def test_a_second_run_is_refused_and_the_first_continues(
    capfd, toml, output, sidecar, tmp_path, monkeypatch
):
    """The first waits meanwhile: a file that changes while it is read is refused for that."""
    hurry = tmp_path / "hurry"
    monkeypatch.setattr(slow_models, "wait", lambda *_: None)  # in this process
    words = [word for setting in held(600, hurry) for word in ("--set", setting)]
    first = start(toml, *words)
    wait_for_rounds(first, output, 2)
    while first.poll() is None and quiet_since(output) < 1.0:
        time.sleep(0.1)
    holder = json.loads(sidecar.read_text())
    assert [holder["pid"]] == running(first)
    code = launch.main([str(toml), *SLOW, *words])
    text = capfd.readouterr().err
    assert code == 2 and "omniinput_hpc: run.output" in text, text
    message = text[text.index("omniinput_hpc: run.output") :]
    assert len(message.strip().splitlines()) == 1
    for word in (
        f"process {holder['pid']} on host {this_process().host}",
        str(sidecar),
        str(output),
    ):
        assert word in message
    assert json.loads(sidecar.read_text()) == holder
    assert launch.main([str(toml), *SLOW, *words, "--check"]) == 0  # looks, and takes nothing
    assert time.time() - sidecar.stat().st_mtime < lock.STALE_AFTER
    rounds = open_run(output).rounds
    hurry.touch()
    wait_for_rounds(first, output, rounds + 2)
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=PATIENCE) == 75
    hurry.unlink()
    assert only_the_run_is_left(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_run_leaves_a_lock_that_the_next_takes_over(toml, output, sidecar, ranks):
    first = start(toml, ranks=ranks)
    wait_for_rounds(first, output, 2)
    signal_all(first, signal.SIGKILL)
    first.wait()
    left = parse(sidecar.read_text())
    done = run(toml, *SLOW, "--max-walltime", 1, ranks=ranks)
    assert done.returncode == 75, done.stderr
    assert f"of process {left.pid} on host {left.host}: that process has ended" in done.stderr
    assert not sidecar.exists()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_run_that_fails_removes_its_lock(toml, output, tmp_path, ranks):
    words = ["model.factory=toy_models:nan", "ladder.betas=[-20.0, -8.0, 0.0, 1.0]"]
    done = run(toml, *(w for word in words for w in ("--set", word)), ranks=ranks)
    assert "not finite" in done.stderr
    assert only_the_run_is_left(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_that_lost_its_lock_writes_nothing_more(toml, output, sidecar, ranks):
    first = start(toml, ranks=ranks)
    wait_for_rounds(first, output, 2)
    signal_all(first, signal.SIGSTOP)  # suspended for long
    other = replace(ME, host="node9", token="other").text
    sidecar.write_text(other)
    with open_run(output) as live:
        rounds = live.rounds
    signal_all(first, signal.SIGCONT)
    _, text = first.communicate(timeout=PATIENCE)
    assert first.returncode in (1, 1 | signal.SIGKILL)
    assert f"process {os.getpid()} on host node9, SLURM job 77 has taken over" in text
    assert "Traceback" not in text
    assert sidecar.read_text() == other
    with open_run(output) as left:  # one commit may have been under way
        assert left.rounds <= rounds + 1
    assert not list(output.parent.glob("run.h5.lock.*"))


def test_another_run_that_wrote_meanwhile_is_noticed(toml, output, sidecar, monkeypatch):
    """The file is judged before the model is read, which takes minutes, and again after."""
    prepare, elsewhere = build.make_rungs, []

    def meanwhile(*arguments):
        if not elsewhere:
            elsewhere.append(1)
            assert launch.main([str(toml), "--set", "run.rounds=3"]) == 0
        return prepare(*arguments)

    monkeypatch.setattr(build, "make_rungs", meanwhile)
    assert launch.main([str(toml)]) == 0
    with open_run(output) as done:
        assert (done.rounds, done.rounds_planned) == (5, 5)
        created = done.texts["created"]
    elsewhere.clear()
    output.unlink()
    assert launch.main([str(toml), "--restart", "never"]) == 2
    with open_run(output) as done:
        assert (done.rounds, done.rounds_planned) == (3, 3)
        assert done.texts["created"] >= created
    assert not sidecar.exists()


def test_heartbeats_between_commits(toml, sidecar, monkeypatch):
    """Rounds that take long must not cost the lock."""
    monkeypatch.setattr(lock, "HEARTBEAT_EVERY", 0.0)
    monkeypatch.setattr(
        "omniinput_hpc.parallel.stopping.SECONDS_BETWEEN_CHECKS", 0.0
    )  # a check after every move
    renewed, utime = [], os.utime
    monkeypatch.setattr(os, "utime", lambda path: renewed.append(path) or utime(path))
    assert launch.main([str(toml), "--set", "run.rounds=2", "--set", "run.burn_in=0"]) == 0
    commits, moves, end = 2, 2 * 15 * 4, 1
    assert renewed == [sidecar] * (moves + commits + end)
