"""docs/running.md's way from a bare account to a figure, where srun alone starts ranks.

The commands are those of the page, in its order, with an empty home folder and no mpirun in PATH.
The models and the data are small ones under the names of the page. `.venv` sees the packages of
this Python, and so MPI, mpi4py and h5py are not built again.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import cluster as slurm
import pytest
from idx_files import write_mnist
from run_tools import ROOT

from omniinput_hpc.runfile import rescored
from omniinput_hpc.runfile.reader import open_run

WHY_NOT = slurm.missing()
PATIENCE = 3600
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(WHY_NOT), reason=f"no SLURM here: {WHY_NOT}"),
    pytest.mark.timeout(PATIENCE + 60),
]

TOML = """
[run]
output = "runs/olmo7b.h5"
seed = 1
rounds = 8
burn_in = 2
[model]
kind = "causal-lm"
path = "inputs/models/{model}"
length = 8
[sampler]
walkers = 16
blocks = 2
steps = 5
exchanges = 2
[ladder]
betas = [0.0, 0.35]
[kernel]
name = "lm-conditional"
[bins]
lower = 0.0
upper = 12.0
width = 0.02
[samples]
every = 1
"""
SMALLER = {
    "--ntasks=64": "--ntasks=2",
    "--ntasks=8": "--ntasks=2",
    "--range 3.4 4.3 --width 0.1": "--range 1.0 6.0 --width 1.0",
    "--model allenai/OLMo-7B-SFT-hf": "--model inputs/models/english",
    "--data FOLDER": "--data digits --effort cpu --threads 1 --output trained",
    "scores.ana.jsonl": "judge-scores.causal-lm.jsonl",
}
"""What the page's commands get here in place of their own words."""
OPTIONS = "--wait --time=50 --cpus-per-task=1 --output=job.log"


def steps_of_the_page():
    """Return the commands of the section, set-up first, as the page prints them."""
    text = (ROOT / "docs/running.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", text[text.index("## On a SLURM cluster") + 3 :], flags=re.M)[0]
    blocks = [block.replace("\\\n", "") for block in BLOCK.findall(section)]
    lines = [line for block in blocks for line in block.splitlines()]
    lines = [line.partition("  #")[0].strip() for line in lines]
    names = ("cd", "hf", "source", "export")  # the downloads, and what each shell gets
    names += ("omniinput annotate",)  # waits for a person
    return [line for line in lines if not line.startswith(names)]


@pytest.fixture(scope="module")
def account(tmp_path_factory):
    """An empty home folder, and a PATH in which nothing but srun starts ranks."""
    folder = tmp_path_factory.mktemp("account")
    for name in ("home", "bin"):
        (folder / name).mkdir()
    for directory in os.environ["PATH"].split(":"):
        for program in sorted(Path(directory).iterdir()) if Path(directory).is_dir() else ():
            link = folder / "bin" / program.name
            if (
                not re.match("mpirun|mpiexec|orterun|hydra|prte", program.name)
                and not link.exists()
            ):
                link.symlink_to(program)
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(folder / "home"), "PATH": str(folder / "bin"), "USER": "root"}


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of the repository, with small input files and data under the names of the page."""
    folder = tmp_path_factory.mktemp("clone") / "omniinput_hpc"
    shutil.copytree(ROOT / "jobscripts", folder / "jobscripts")
    packages = [path.name for path in ROOT.glob("omniinput_*")]
    for name in ("LICENSE", "README.md", "analysis", "pyproject.toml", "setup.cfg", *packages):
        (folder / name).symlink_to(ROOT / name)
    (folder / "inputs").mkdir()
    (folder / "inputs/models").symlink_to(ROOT / "inputs/models")
    (folder / "inputs/olmo7b.toml").write_text(TOML.format(model="toy"))
    (folder / "inputs/olmo7b-sft.toml").write_text(TOML.format(model="toy-worse"))
    (folder / "inputs/judges").symlink_to(ROOT / "inputs/judges")
    (folder / "digits").mkdir()
    for part in ("train", "t10k"):
        write_mnist(folder / "digits", 60, part)
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)})
    below = [path for path in sys.path if path.endswith("-packages") and os.path.isdir(path)]
    Path(site, "packages-of-the-tests.pth").write_text("\n".join(below) + "\n")
    return folder


def shell(line, environment, folder):
    """Run a line as in a new shell after `source .venv/bin/activate`."""
    words = f"source .venv/bin/activate && {line}"
    return subprocess.run(
        ["bash", "-c", words], env=environment, cwd=folder, capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip


CHOICE = (
    'set -euo pipefail; source jobscripts/setup.sh; find_python; choose_mpi; printf "%s\n" "$mpi"'
)


@pytest.fixture(scope="module")
def ready(account, clone):
    """The set-up of the page."""
    chosen = subprocess.run(
        ["bash", "-c", CHOICE], env=account, cwd=clone, capture_output=True, text=True, timeout=400
    )
    assert chosen.returncode == 0, chosen.stderr
    lines = dict(line.partition(" = ")[::2] for line in chosen.stdout.splitlines())
    assert lines["flavour"] == "system"
    assert lines["mpicc"].startswith(account["PATH"])
    assert lines.get("mpirun", lines.get("mpirun =")) == ""
    (clone / ".venv/mpi-flavour").write_text(chosen.stdout)  # as if it were built: this Python's is
    setup = steps_of_the_page()[0]
    assert setup.startswith("bash jobscripts/setup.sh")
    done = subprocess.run(
        setup.split(), env=account, cwd=clone, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_a_set_up_without_mpirun_starts_no_ranks(ready, account, clone):
    assert (
        "no mpirun here: ranks are started by jobs (sbatch jobscripts/run.sbatch)" in ready.stdout
    )
    assert "no ranks were started" in ready.stdout
    again = subprocess.run(
        ["bash", "jobscripts/local.sh", "inputs/olmo7b.toml", "--check"], env=account, cwd=clone,
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert f"+ {clone}/.venv/bin/python -m omniinput_hpc inputs/olmo7b.toml" in again.stdout
    assert "setup: ready" not in again.stdout, "it was set up already"
    assert "ranks     1 on 1 host(s)" in again.stderr


def test_from_the_set_up_to_a_figure(ready, account, clone, tmp_path):
    logs = {}
    with slurm.Cluster(tmp_path / "slurm") as cluster:
        names = {k: v for k, v in cluster.environment.items() if k.startswith(("SLURM", "OMNI"))}
        for line in steps_of_the_page()[1:]:
            for theirs, ours in SMALLER.items():
                line = line.replace(theirs, ours)
            line = re.sub("^sbatch", f"sbatch {OPTIONS}", line)
            (clone / "job.log").unlink(missing_ok=True)
            done = shell(line, {**account, **names}, clone)
            log = (clone / "job.log").read_text() if (clone / "job.log").exists() else ""
            assert done.returncode == 0, "\n".join([line, done.stdout, done.stderr, log])
            print(f"--- {line}\n{done.stdout}{log}")
            logs[line.split()[-1]] = log
    assert "2 ranks start: importing libraries" in logs["--check"]
    assert "writer mpio" in logs["--check"] and "ranks     2 on 1 host(s)" in logs["--check"]
    assert ": complete\n" in logs["inputs/olmo7b.toml"]
    runs = clone / "runs"
    with open_run(runs / "olmo7b.h5") as run:
        assert run.rounds == 8
    with rescored.open_rescored(runs / "olmo7b.rescored.olmo7b-sft.h5") as side:
        assert side.rounds == 8
    assert (clone / "trained/model.safetensors").exists()
    assert (runs / "olmo7b.pr.png").stat().st_size > 10_000
    assert cluster.processes() == []
