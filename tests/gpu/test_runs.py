"""Whole runs on a GPU: the exact density, the same bytes twice, after a kill and on two ranks."""

import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
import torch
from gpu_models import DEVICE, HAS_GPU, NO_GPU, TINY
from run_tools import ROOT, assert_same, command, environment, mpirun, run

from omniinput_hpc import models
from omniinput_hpc.config import input_file
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.results.tables import read_table
from omniinput_hpc.runfile.reader import open_run

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(400)]
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason=NO_GPU)
needs_launcher = pytest.mark.skipif(
    shutil.which(mpirun(2)[0]) is None, reason="no MPI launcher (mpirun) here"
)

SECONDS = 350
KIND = "cuda" if HAS_GPU else "cpu"
BETAS = [0.0, 12.0, 18.0, 24.0] if TINY else [0.0, 4.9, 10.0, 14.8, 19.5, 24.0]
ENGLISH = [
    f"ladder.betas={BETAS}", "ladder.tune=false", f"run.rounds={3 if TINY else 8}",
    "run.burn_in=1", f"sampler.walkers={4 if TINY else 64}",
    f"sampler.exchanges={2 if TINY else 6}", "samples.every=5",
]  # fmt: skip


def sets(*words):
    """Return the command line's words for settings."""
    return [word for setting in words for word in ("--set", setting)]


def english(path, *words, device=KIND):
    """Return the words of a run of the English model that writes a file."""
    own = (f"run.output={path}", f'run.device="{device}"')
    return ["inputs/english-25.toml", *sets(*ENGLISH, *own, *words)]


def completed(*words, ranks=1, code=0):
    """Run the program to its end; return what it said, and the seconds."""
    begin = time.perf_counter()
    done = run(*words, ranks=ranks, timeout=SECONDS, cold=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr, time.perf_counter() - begin


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of the English model that nothing interrupted, and its seconds."""
    path = tmp_path_factory.mktemp("whole") / "english.h5"
    said, seconds = completed(*english(path))
    assert "without CUDA graphs" not in said
    return path, seconds


def test_a_short_run_of_the_toy_lies_on_the_truth(tmp_path, measure):
    """A tenth of inputs/toy.toml: rms z-score where there are 10,000 inputs or more."""
    rounds = input_file.load(ROOT / "inputs/toy.toml").run.rounds // 10
    path = tmp_path / "toy.h5"
    words = sets(f"run.output={path}", f"run.rounds={rounds}", f'run.device="{KIND}"')
    _, seconds = completed("inputs/toy.toml", *words)
    with open_run(path) as file:
        density = density_of_run(file.data)
    _, truth = read_table(ROOT / "inputs/exact/toy.csv", ["z_lower", "log_g"])
    exact = np.full(len(density.log_g_b), -np.inf)
    exact[bin_of(truth["z_lower"] + 0.01, density.edges)] = truth["log_g"]
    many = exact >= np.log(10_000)
    delta, error = density.log_g_b[many] - exact[many], density.log_g_error_b[many]
    score = float(np.sqrt(np.mean((delta / error) ** 2)))
    measure("rms z-score of the Toy's density", score, "sigmas", bins=int(many.sum()))
    measure("seconds of the Toy's run", seconds, "s")
    assert np.isfinite(error).all()
    assert 0.7 < score < 1.4
    assert (np.abs(delta) < np.maximum(0.3, 4.5 * error)).all()
    wrong = delta + 0.02 * np.arange(many.sum())  # a law that drifts away must not pass
    assert not np.sqrt(np.mean((wrong / error) ** 2)) < 1.4


LAW_BETAS = [0.0, 3.0, 8.0]
LAW = """
[run]
output = "{path}"
seed = 3
rounds = {rounds}
burn_in = 4
device = "{device}"
[model]
kind = "causal-lm"
path = "inputs/models/toy"
length = {length}
dtype = "{dtype}"
[sampler]
walkers = 256
steps = 10
exchanges = 2
[ladder]
betas = {betas}
[bins]
lower = 0.0
upper = 16.0
width = 0.1
[samples]
every = 10
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rungs_have_the_law_of_their_own_precision(tmp_path, measure, dtype):
    """Mean z of each rung against the sum over all inputs, evaluated in the same precision."""
    path, length = tmp_path / "law.h5", 3 if TINY else 5
    rounds = 8 if TINY else 30
    text = LAW.format(
        path=path, device=KIND, length=length, dtype=dtype, betas=LAW_BETAS, rounds=rounds
    )
    (tmp_path / "law.toml").write_text(text)
    completed(tmp_path / "law.toml")
    model = models.build(input_file.parse(text, "law"), DEVICE)
    n = model.n_values
    every = torch.cartesian_prod(*[torch.arange(n)] * length).to(DEVICE)
    z = torch.cat([model.output(part) for part in every.split(1000)]).double().cpu().numpy()
    with open_run(path) as file:
        z_rks = file.samples_z().astype(np.float64)
    mean_kw = z_rks.reshape(len(z_rks), len(LAW_BETAS), -1, 256).mean(axis=(0, 2))
    error_k = mean_kw.std(axis=1, ddof=1) / np.sqrt(256)  # lanes are independent
    for k, beta in enumerate(LAW_BETAS):
        found, error = float(mean_kw[k].mean()), float(error_k[k])
        sigmas = (found - mean_z(z, beta)) / error
        measure("mean z - the exact one", sigmas, "sigmas", dtype=dtype, beta=beta)
        assert abs(sigmas) < 5
        wrong = (found - mean_z(z, beta + 2)) / error  # another law must be told from this one
        assert abs(wrong) > 8


def mean_z(z, beta):
    """Return the exact mean of z at beta, from the outputs of all inputs."""
    weight = np.exp(-beta * (z - z.min()))
    return float((weight * z).sum() / weight.sum())


def test_the_same_bytes_twice(tmp_path, whole, measure):
    path, seconds = whole
    completed(*english(tmp_path / "again.h5"))
    assert_same(path, tmp_path / "again.h5")
    completed(*english(tmp_path / "other.h5", "run.seed=2"))
    with pytest.raises(AssertionError):
        assert_same(path, tmp_path / "other.h5")
    measure("seconds of the English run", seconds, "s")


def test_killed_and_resumed_it_has_the_same_bytes(tmp_path, whole, measure):
    path = tmp_path / "killed.h5"
    words = command(*english(path), cold=True)
    with subprocess.Popen(
        words, cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        until = time.monotonic() + SECONDS
        while not (path.exists() and rounds_of(path) >= 1) and time.monotonic() < until:
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    killed_after = rounds_of(path)
    measure("rounds before the kill", killed_after)
    with open_run(path) as file:
        assert 1 <= killed_after < file.rounds_planned
    completed(*english(path), "--restart", "require")
    assert_same(whole[0], path)


def rounds_of(path):
    with open_run(path) as file:
        return file.rounds


@needs_launcher
def test_two_ranks_on_one_gpu_write_the_same_bytes(tmp_path, whole, measure):
    _, seconds = completed(*english(tmp_path / "two.h5"), ranks=2)
    assert_same(whole[0], tmp_path / "two.h5")
    measure("seconds of the English run on two ranks", seconds, "s", on_one=whole[1])


@needs_gpu
def test_a_run_that_moves_from_the_cpu_to_the_gpu_says_so(tmp_path):
    path = tmp_path / "moved.h5"
    few = ("run.rounds=1", "run.burn_in=0", "sampler.walkers=4", "sampler.exchanges=1")
    completed(*english(path, *few, device="cpu"))
    said, _ = completed(*english(path, *few[1:], "run.rounds=2"))
    assert "resuming in a different environment" in said
    assert "GPU none -> " in said


def test_auto_finds_a_number_of_walkers_and_takes_the_gpu(tmp_path, measure):
    words = english(tmp_path / "auto.h5", 'sampler.walkers="auto"', device="auto")
    said, seconds = completed(*words, "--check")
    assert 'found by "auto"' in said
    assert (DEVICE if HAS_GPU else "cpu") in said
    (line,) = [line for line in said.splitlines() if 'found by "auto"' in line]
    measure("walkers that auto finds for English", line.strip(), seconds=round(seconds, 1))


def test_the_doctor_sees_the_machine(tmp_path):
    said, _ = completed("--doctor", tmp_path)
    name = torch.cuda.get_device_name() if HAS_GPU else "cpu"
    assert name in said
