"""The job scripts as shipped, under a real SLURM on this machine (see cluster.py).

All jobs run side by side, once, in the fixture `jobs`: about 100 s on two idle cores. A job that a
test stops is slow until then, however long that takes, and hurries afterwards.
"""

import re
import time

import cluster as slurm
import pytest
from run_tools import LATTICE, ROOT, assert_same, environment, run

from omniinput_hpc.annotation.scores import find_scores
from omniinput_hpc.annotation.tasks import read_tasks
from omniinput_hpc.cli.verbs import choose
from omniinput_hpc.runfile import rescored
from omniinput_hpc.runfile.reader import open_run

WHY_NOT = slurm.missing()
SECONDS = 900  # for all jobs together, before the tests give up

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(WHY_NOT), reason=f"no SLURM here: {WHY_NOT}"),
    pytest.mark.timeout(SECONDS + 60),
]


def inline(table):
    """Return a table in TOML."""
    return "{ " + ", ".join(f"{key} = {value!r}" for key, value in table.items()) + " }"


class Job:
    """A job script that was submitted, with the settings of its marked block overridden.

    Its input file's model pauses for `seconds` in each of a round's 60 evaluations, until `hurry`
    is called. Given `fails`, it fails in so many starts: in the first after evaluation `after`, in
    later ones in the first round. The words `before` come before the input files.
    """

    def __init__(
        self, cluster, folder, script, seconds, rounds, *words, n=1, options=(), before=(), **more
    ):
        self.cluster, self.folder, self.rounds = cluster, folder, rounds
        self.log, self.runs = folder / "job.log", [folder / f"run{i}.h5" for i in range(n)]
        self.hurry = (folder / "hurry").touch
        for path in self.runs:
            text = LATTICE.format(output=path).replace("toy_models:lattice", "slow_models:slow")
            text = text.replace("rounds = 5", f"rounds = {rounds}")
            table = {"seconds": seconds, "mark": f"{path}.starts", "hurry": f"{folder}/hurry"}
            table |= more
            text = text.replace("[sampler]", f"options = {inline(table)}\n[sampler]")
            path.with_suffix(".toml").write_text(text)
        tomls = [path.with_suffix(".toml") for path in self.runs]
        options = ["--ntasks=1", "--cpus-per-task=1", "--time=9", f"--output={self.log}", *options]
        sbatch = ["sbatch", "--parsable", f"--chdir={ROOT}", *options]
        self.id = cluster.call(*sbatch, ROOT / "jobscripts" / script, *before, *tomls, *words)
        assert self.id, f"sbatch refuses {script}"

    def text(self):
        return self.log.read_text() if self.log.exists() else ""

    def texts(self):
        """Of all members of an array."""
        return "".join(path.read_text() for path in self.log.parent.glob("job?.log"))

    def state(self, member=""):
        """The last known state: SLURM forgets jobs after 5 minutes."""
        shown = self.cluster.call("scontrol", "show", "job", "--oneliner", self.id + member)
        return " ".join(re.findall(r"(?:JobState|Restarts|ExitCode)=\S+", shown))

    def ended(self, member=""):
        return re.search("COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL", self.state(member))

    def send_usr1(self, member=""):
        """What SLURM does before the time limit."""
        self.cluster.do("scancel", "--batch", "--signal=USR1", self.id + member)

    def committed(self):
        """Committed rounds of each of the job's run files."""
        counts = []
        for path in self.runs:
            if path.exists():
                with open_run(path) as one:
                    counts.append(one.rounds)
        return counts if len(counts) == len(self.runs) else [0]


def cycle(cluster, folder):
    """Two ranks, whose time limit sends SIGUSR1: when some rounds are committed, it is lowered.

    SLURM looks every 30 s whether the signal will be due within 30 s; at least a minute is left
    then for the stop.
    """
    options = ["--ntasks=2", "--time=30", "--signal=B:USR1@120"]
    job = Job(cluster, folder, "run.sbatch", 0.05, 145, options=options)
    yield job
    yield lambda: all(job.committed())
    used = cluster.do("squeue", "-ho", "%M", f"--jobs={job.id}")  # minutes:seconds
    cluster.do("scontrol", "update", f"JobId={job.id}", f"TimeLimit={int(used[:-3]) + 3}")
    yield lambda: "PENDING" in job.state()  # requeued
    cluster.do("scontrol", "update", f"JobId={job.id}", "TimeLimit=30")
    job.hurry()
    yield job.ended


def bad(cluster, folder):
    job = Job(cluster, folder, "run.sbatch", 0, 5, "--set", "run.rondes=3")
    yield job
    yield job.ended


def cancelled(cluster, folder):
    job = Job(cluster, folder, "run.sbatch", 0.05, 200)
    yield job
    yield lambda: all(job.committed())
    cluster.do("scancel", job.id)
    yield job.ended


def array(cluster, folder):
    options = ["--array=0-1", f"--output={folder / 'job%a.log'}"]
    job = Job(cluster, folder, "array.sbatch", 0.05, 200, n=2, options=options)
    yield job
    yield lambda: all(job.committed())
    ids = [line.split() for line in cluster.do("squeue", "-hro", "%K %A").splitlines()]
    job.stopped = next(index for index, number in ids if number == job.id)  # has the array's id
    job.send_usr1(f"_{job.stopped}")
    yield lambda: "rounds committed; queueing it again" in job.texts()
    job.hurry()
    yield lambda: job.ended("_0") and job.ended("_1")


def stuck(cluster, folder):
    """Stopped in each start's first round, which would take a minute."""
    job = Job(cluster, folder, "run.sbatch", 1.0, 20)
    yield job
    for start in (1, 2, 3):
        yield lambda start=start: job.text().count("; writer ") == start  # its plan is printed
        job.send_usr1()
    yield job.ended


def fails_once(cluster, folder):
    job = Job(cluster, folder, "run.sbatch", 0, 5, fails=1, after=150)
    yield job
    yield job.ended


def fails_always(cluster, folder):
    job = Job(cluster, folder, "run.sbatch", 0, 5, fails=99, after=150)
    yield job
    yield job.ended


def fails_at_once(cluster, folder):
    """A failure before the first commit."""
    job = Job(cluster, folder, "run.sbatch", 0, 5, fails=1)
    yield job
    yield job.ended


def finished(folder):
    """Return the finished run of the lattice model."""
    toml = folder / "finished.toml"
    toml.write_text(LATTICE.format(output=folder / "finished.h5"))
    done = run(toml)
    assert done.returncode == 0, done.stderr
    return folder / "finished.h5"


def rescores(cluster, folder):
    words = ["-m", "omniinput_hpc.rescore", finished(folder)]
    job = Job(cluster, folder, "python.sbatch", 0.5, 1, before=words)
    side = folder / "finished.rescored.run0.h5"
    yield job

    def some_committed():
        if not side.exists():
            return False
        with rescored.open_rescored(side) as found:
            return found.rounds

    yield some_committed
    job.send_usr1()
    yield lambda: "rounds committed; queueing it again" in job.text()
    job.hurry()
    yield job.ended


RULE = """
import pathlib, time
import numpy as np

def score(x):
    if not pathlib.Path(__file__).with_name("hurry").exists():
        time.sleep(2)
    return np.ones(len(x))
"""


def judges(cluster, folder):
    """A judge is ended by the signal; what it has scored is not scored again."""
    path = finished(folder)
    wanted = "--per-bin 10 --repeats 0 --width 0.25 --range -0.125 4.625"
    choose.main([str(path), *wanted.split()])
    (folder / "slow_rule.py").write_text(RULE)
    tasks = folder / "finished.tasks.jsonl"
    words = ["analysis/judge.py", tasks, "--judge", "slow_rule:score", "--batch", "2"]
    found = f"--export=ALL,PYTHONPATH={cluster.environment['PYTHONPATH']}:{folder}"
    job = Job(cluster, folder, "python.sbatch", 0, 0, *words, n=0, options=[found])
    yield job
    yield lambda: find_scores(tasks) and find_scores(tasks)[0].read_text().count("\n") > 2
    job.send_usr1()
    yield lambda: "scores committed; queueing it again" in job.text()
    job.hurry()
    yield job.ended


TRAINING = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
with open(folder / "begun", "a") as file:
    file.write("x")
while not (folder / "hurry").exists():
    time.sleep(0.1)
"""


def trains(cluster, folder):
    """A command that cannot resume, by mistake with two ranks and with SLURM's signal."""
    words = ["-c", TRAINING, folder]
    job = Job(cluster, folder, "python.sbatch", 0, 0, *words, n=0, options=["--ntasks=2"])
    yield job
    yield (folder / "begun").exists
    job.send_usr1()
    yield lambda: "this command cannot resume" in job.text()
    job.hurry()
    yield job.ended


SCRIPTS = (
    cycle, bad, cancelled, array, stuck, fails_once, fails_always, fails_at_once, rescores, judges,
    trains,
)  # fmt: skip


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """All jobs, ended, by the names of the functions above; nothing is left of the SLURM."""
    cluster = slurm.Cluster(tmp_path_factory.mktemp("slurm"))
    extra = environment()["PYTHONPATH"]
    cluster.environment["PYTHONPATH"] = f"{extra}"
    with cluster:
        scripts = {
            function.__name__: function(cluster, tmp_path_factory.mktemp(function.__name__))
            for function in SCRIPTS
        }
        found = {name: next(script) for name, script in scripts.items()}
        waiting = {name: next(script) for name, script in scripts.items()}
        deadline = time.monotonic() + SECONDS
        while waiting:
            logs = {name: f"{found[name].state()}\n{found[name].text()}" for name in waiting}
            assert time.monotonic() < deadline, "\n".join(["not ended:", *logs.values()])
            time.sleep(1)
            for name in [name for name, condition in waiting.items() if condition()]:
                waiting[name] = next(scripts[name], None)
            waiting = {name: condition for name, condition in waiting.items() if condition}
        states = {(name, m): job.state(m) for name, job in found.items() for m in ("", "_0", "_1")}
        for name, job in found.items():
            job.state = lambda member="", name=name: states[name, member]
        yield found
    assert cluster.processes() == []
    assert not [path for job in found.values() for path in job.folder.glob("*.slurm")]


def test_stops_before_the_time_limit_and_goes_on_until_complete(jobs, tmp_path):
    job = jobs["cycle"]
    text = job.text()
    print(re.sub(r"\n(?!20|srun|slurm|\[rank 0\] (stopped|complete)|file ).*", "", text))
    assert "JobState=COMPLETED" in job.state() and "ExitCode=0:0" in job.state(), text
    restarts = int(re.search(r"Restarts=(\d+)", job.state()).group(1))
    assert restarts >= 1
    assert text.count("SIGUSR1: asking the run to stop") == restarts
    assert text.count("rounds committed; queueing it again") == restarts
    assert "[rank 0] stopped early (SIGUSR1); everything committed is safe" in text
    resumed = [int(n) for n in re.findall(r"resumes after (\d+) of 145 rounds", text)]
    assert resumed and resumed[0] > 0 and resumed == sorted(resumed)
    assert ": complete\n" in text
    assert "TIME LIMIT" not in text

    whole = tmp_path / "whole.h5"
    settings = [f"run.output={whole}", "model.factory=toy_models:lattice", "model.options={}"]
    words = [word for setting in settings for word in ("--set", setting)]
    done = run(job.folder / "run0.toml", *words, ranks=2)
    assert done.returncode == 0, done.stderr
    assert_same(job.runs[0], whole)


def test_bad_input_ends_the_job(jobs):
    job = jobs["bad"]
    assert job.state() == "JobState=FAILED Restarts=0 ExitCode=2:0"
    assert 'did you mean "rounds"' in job.text()
    assert "exit code 2, bad input: not queued again" in job.text()


def test_a_cancelled_job_stays_cancelled(jobs):
    job = jobs["cancelled"]
    assert job.state().startswith("JobState=CANCELLED Restarts=0"), job.text()
    # SLURM sends SIGTERM to the program, and to the script, which sends SIGUSR1 by srun: either
    # may come first, and the first is named.
    assert re.search(r"\[rank 0\] stopped early \(SIG(TERM|USR1)\)", job.text()), job.text()
    assert "the job was cancelled or preempted: not queued again" in job.text()


def test_of_an_array_only_the_member_that_was_stopped_starts_again(jobs):
    job = jobs["array"]
    other = str(1 - int(job.stopped))
    assert job.state(f"_{job.stopped}") == "JobState=COMPLETED Restarts=1 ExitCode=0:0"
    assert job.state(f"_{other}") == "JobState=COMPLETED Restarts=0 ExitCode=0:0"
    assert job.committed() == [200, 200]
    assert_same(*job.runs)


def test_gives_up_after_two_restarts_that_committed_nothing(jobs):
    job = jobs["stuck"]
    assert job.state() == "JobState=FAILED Restarts=2 ExitCode=75:0", job.text()
    assert "not queued again: 2 restarts in a row committed no rounds" in job.text()


def test_a_failure_after_commits_is_queued_again_and_finishes(jobs):
    job = jobs["fails_once"]
    text = job.text()
    assert job.state() == "JobState=COMPLETED Restarts=1 ExitCode=0:0", text
    assert "RuntimeError: as it was told to" in text
    assert ": a failure, see the message above" in text
    assert re.search("resumes after [12] of 3 burn-in rounds", text), text
    assert job.committed() == [5]


def test_a_failure_without_progress_is_queued_twice_and_not_again(jobs):
    job = jobs["fails_always"]
    text = job.text()
    assert job.state().startswith("JobState=FAILED Restarts=2 "), text
    assert text.count(": a failure, see the message above") == 3
    assert "not queued again: 2 restarts in a row committed no rounds. Committed rounds are" in text


def test_a_failure_before_the_first_commit_is_not_queued_again(jobs):
    job = jobs["fails_at_once"]
    assert job.state().startswith("JobState=FAILED Restarts=0 "), job.text()
    assert "not queued again: 0 rounds are committed; before this start it was 0" in job.text()


def test_rescoring_is_stopped_and_goes_on(jobs):
    job = jobs["rescores"]
    assert job.state() == "JobState=COMPLETED Restarts=1 ExitCode=0:0", job.text()
    assert "[rank 0] stopped early (SIGUSR1)" in job.text()
    with (
        rescored.open_rescored(job.folder / "finished.rescored.run0.h5") as side,
        open_run(job.folder / "finished.h5") as path,
    ):
        assert side.rounds == path.rounds == 5
        for round_, (_, z) in enumerate(path.samples()):
            assert (side.z(round_) == z).all()


def test_a_judge_is_ended_and_goes_on(jobs):
    job = jobs["judges"]
    text = job.text()
    assert job.state() == "JobState=COMPLETED Restarts=1 ExitCode=0:0", text
    tasks = read_tasks(job.folder / "finished.tasks.jsonl")
    new, before = map(int, re.search(r"(\d+) tasks scored, (\d+) were already", text).groups())
    assert before > 0 and new > 0 and new + before == len(tasks.tasks)


def test_a_training_has_the_time_until_the_limit_and_one_process(jobs):
    job = jobs["trains"]
    assert job.state() == "JobState=COMPLETED Restarts=0 ExitCode=0:0", job.text()
    assert "this command is one process, and leaves the other 1 idle" in job.text()
    assert (job.folder / "begun").read_text() == "x"
