"""What a job script is told of a command: ranks, how far it has come, and where that is."""

import subprocess

import pytest
from run_files import write_run
from run_tools import ROOT

from omniinput_hpc.cli import committed
from omniinput_hpc.runfile import rescored
from omniinput_hpc.runfile.reader import open_run

TOY = str(ROOT / "inputs/toy.toml")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a run file of the Toy's size, and nothing else."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "a.h5", walkers=16)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("-m omniinput_hpc.zoo.images mlp-mnist --data d", "one - - -"),
        ("-m omniinput_hpc.zoo.toy", "one - - -"),
        ("-m omniinput_hpc.test_sets a.toml", "one - - -"),
        ("analysis/judge.py a.tasks.jsonl --judge fid --model m", "one - - -"),
        ("-m omniinput_hpc a.toml --check", "many - - -"),
        ("-m omniinput_hpc check a.toml", "many - - -"),
        ("-m omniinput_hpc --doctor runs", "many - - -"),
        ("-m omniinput_hpc.enumerate a.toml", "many - - -"),
        ("-m omniinput_hpc no-such.toml", "many 0 rounds"),
        ("-m omniinput_hpc run", "many 0 rounds"),
        ("-m omniinput_hpc.rescore a.h5", "many 0 rounds"),
        ("-u -X dev -m omniinput_hpc rescore a.h5 b.toml", "many 0 rounds a.rescored.b.h5"),
        ("-m omniinput_hpc.rescore a.h5 other/b.toml", "many 0 rounds a.rescored.b.h5"),
        ("-m omniinput_hpc rescore --set a.b=8 a.h5 b.toml", "many 0 rounds a.rescored.b.h5"),
        (f"-m omniinput_hpc {TOY} --set run.output=c.h5", "many 0 rounds c.h5"),
        (f"-m omniinput_hpc.census --below 1.7 {TOY} --set run.output=c.h5",
         "many 0 prefixes c.census.h5"),
        (f"-m omniinput_hpc census {TOY} --seconds 3 --output d.census.h5",
         "many 0 prefixes d.census.h5"),
        ("analysis/judge.py a.tasks.jsonl --judge m:f", "one 0 scores a.tasks.jsonl"),
        ("-m omniinput_hpc judge --template t a.tasks.jsonl --judge m:f",
         "one 0 scores a.tasks.jsonl"),
        ("analysis/judge.py", "one 0 scores"),
        ("", "one - - -"),
    ],
)  # fmt: skip
def test_commands_that_have_done_nothing(words, line, here, capsys):
    assert committed.main(words.split()) == 0
    assert capsys.readouterr().out == f"{line}\n"


def test_rounds_of_a_run_with_its_burn_in(here):
    with open_run(here / "a.h5") as run:
        n = run.rounds + run.burn_in_committed
        assert n > 0
    by_run_file, by_input = (
        committed.described(["-m", "omniinput_hpc", *words])
        for words in (["a.h5"], [TOY, "--set", "run.output=a.h5"])
    )
    assert by_run_file == by_input == f"many {n} rounds a.h5"


def test_rounds_that_were_rescored(here):
    with open_run(here / "a.h5") as run:
        header = {"config": run.config_toml, "model_fingerprint": ""}
        rescored.create(here / "a.rescored.b.h5", run, header)
    words = ["-m", "omniinput_hpc.rescore", "a.h5", "b.toml"]
    assert committed.described(words) == "many 0 rounds a.rescored.b.h5"


def test_scores_of_a_judge_grow(here):
    words = ["analysis/judge.py", "a.tasks.jsonl", "--judge", "m:f", "--results", "there"]
    (here / "there").mkdir()
    found = []
    for lines in ("", "header\n", "header\nscore\nscore\n", "header\nscore\nscore\ntorn"):
        (here / "there/a.judge-scores.f.jsonl").write_text(lines)
        found.append(committed.described(words))
    assert found == [f"one {n} scores there/a.tasks.jsonl" for n in (0, 1, 3, 3)]


SLURM = """
export SLURM_JOB_ID=7 SLURM_NTASKS=1 SLURM_JOB_NODELIST=n1 SLURM_RESTART_COUNT={restarts}
mpi=pmi2 python=(python_)
python_() {{ echo "many 0 rounds runs/a.h5"; }}
srun() {{ echo "srun $*"; return 75; }}
scontrol() {{ echo "$* JobState=RUNNING"; }}
source {script}
run_and_requeue -m omniinput_hpc a.toml --restart never
"""


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_job_is_queued_again_before_its_run_has_a_folder(restarts, tmp_path):
    """Its next start resumes what the first one made, also with --restart never."""
    if restarts:
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs/a.h5.slurm").write_text("7 0\n")
    text = SLURM.format(restarts=restarts, script=ROOT / "jobscripts/slurm.sh")
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 75, done.stderr
    assert "requeue 7 JobState" in done.stdout
    assert (tmp_path / "runs/a.h5.slurm").read_text() == f"7 {restarts}\n"
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("srun ")]
    assert line.endswith("--restart auto" if restarts else "--restart never")
    (tmp_path / "runs/a.h5.slurm").write_text("6 0\n")  # an older job's: its run is not this one's
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, cwd=tmp_path)
    assert "--restart auto" not in done.stdout
