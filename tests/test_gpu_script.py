"""jobscripts/test_gpu.sh: tried out on small models, and what it says where there is no GPU."""

import json
import subprocess
import sys

import pytest
import torch
from run_tools import ROOT, environment

SCRIPT = ROOT / "jobscripts/test_gpu.sh"
needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")


def call(*words, out, python=sys.executable):
    env = {**environment(), "OUT": str(out), "PYTHON": python}
    return subprocess.run(
        ["bash", str(SCRIPT), *words], capture_output=True, text=True, env=env, timeout=400
    )


def test_an_unknown_part_is_told(tmp_path):
    done = call("sped", out=tmp_path)
    assert done.returncode == 2
    assert "'sped' is not one of right, speed, memory, wheels, --tiny" in done.stderr


@pytest.mark.slow
@needs_no_gpu
def test_without_a_gpu_nothing_passes(tmp_path):
    done = call("memory", out=tmp_path)
    assert done.returncode == 1
    assert "sees no GPU here, so nothing was tested" in done.stderr


def test_wheels_that_cannot_be_fetched_are_a_failure(tmp_path):
    script = tmp_path / "jobscripts/test_gpu.sh"
    script.parent.mkdir()
    script.write_text(SCRIPT.read_text())
    command = ["bash", str(script), "wheels", "--tiny"]
    done = subprocess.run(command, capture_output=True, env={**environment(), "PYTHON": "false"})
    assert done.returncode == 1
    assert done.stderr == b""  # nothing follows what failed


def test_a_part_that_fails_is_named(tmp_path):
    done = call("--tiny", "memory", "speed", out=tmp_path, python="false")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "===== FAILED: memory speed ====="


@pytest.mark.slow
@needs_no_gpu
@pytest.mark.parametrize("part", [pytest.param("speed", marks=pytest.mark.release), "memory"])
def test_a_part_on_small_models(tmp_path, part):
    done = call("--tiny", part, out=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / f"{part}.json").read_text())
    assert found["machine"]["gpu"] == "none"
    assert found["machine"]["tiny"]
    names = {row["name"] for row in found["figures"]}
    if part == "speed":
        assert names >= {"moves of walkers", "the host's share", "share of the matrix peak"}
        assert "aten::" in (tmp_path / "profile-olmo-7b-look_ahead.txt").read_text()
    else:
        assert names >= {"graphs recorded", "GB that they take"}
        assert "torch sees no GPU here" in done.stdout  # the reason of what was skipped
