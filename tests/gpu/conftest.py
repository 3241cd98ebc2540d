"""Tests that need a GPU: skipped without one; what they measure is printed and kept.

`OMNIINPUT_GPU_TINY=1` (`bash jobscripts/test_gpu.sh --tiny`) takes small models, on the CPU where
there is no GPU, so that the tests themselves can be tried out anywhere.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from gpu_models import DEVICE, HAS_GPU, NO_GPU, TINY

FOLDER = Path(os.environ.get("OUT") or "gpu-results")
PART = os.environ.get("OMNIINPUT_GPU_PART", "gpu")
ROWS: list[dict] = []


def pytest_collection_modifyitems(items):
    """Skip what is marked gpu where there is none."""
    for item in items:
        if item.get_closest_marker("gpu") and not (HAS_GPU or TINY):
            item.add_marker(pytest.mark.skip(reason=NO_GPU))


@pytest.fixture(scope="session", autouse=True)
def machine():
    """Describe what the figures were seen on."""
    import transformers

    from omniinput_hpc.models import device

    device.choose("cuda" if HAS_GPU else "cpu", 0, 1)  # with the settings of a run
    return {
        **device.gpu(DEVICE), "torch": torch.__version__, "tiny": TINY,
        "transformers": transformers.__version__,
    }  # fmt: skip


def rounded(value):
    """Return a figure as it is printed."""
    return f"{value:.4g}" if isinstance(value, float) else value


@pytest.fixture
def measure(machine):
    """Return a function that prints a figure, and keeps it in PART.json of $OUT."""

    def keep(name, value, unit="", **settings):
        row = {"name": name, "value": value, "unit": unit, **settings}
        ROWS.append(row)
        about = ", ".join(f"{key} {rounded(number)}" for key, number in settings.items())
        about = f" ({about})" if about else ""
        print(f"\n  {name}{about}: {rounded(value)} {unit}".rstrip(), end="", flush=True)
        FOLDER.mkdir(parents=True, exist_ok=True)  # now: a part that is killed leaves its figures
        text = json.dumps({"machine": machine, "figures": ROWS}, indent=1)
        (FOLDER / f"{PART}.json").write_text(text, encoding="utf-8")

    return keep


@pytest.fixture
def results_folder():
    """The folder for what is no single figure."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    return FOLDER
