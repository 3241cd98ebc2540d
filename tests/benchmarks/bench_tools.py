"""What benchmarks share: models of random weights, an input file, the machine, real runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/helpers"))

import run_tools  # noqa: E402
import torch  # noqa: E402

TEMPLATE = """
[run]
output = "{output}"
seed = 1
rounds = {rounds}
burn_in = {burn_in}
[model]
kind = "causal-lm"
path = "{path}"
length = {length}
dtype = "{dtype}"
[sampler]
walkers = {walkers}
steps = {steps}
exchanges = {exchanges}
[ladder]
lowest = {lowest}
highest = {highest}
rungs = {rungs}
spacing = "linear"
[kernel]
name = "{kernel}"
[bins]
lower = 0.0
upper = 40.0
width = 0.02
[samples]
every = {every}
"""

DEFAULTS = {
    "rounds": 2, "burn_in": 0, "length": 25, "dtype": "float32", "walkers": 16, "steps": 10,
    "exchanges": 10, "lowest": 6.0, "highest": 18.0, "rungs": 2, "kernel": "metropolis",
    "every": 50,
}  # fmt: skip

SHAPES: dict[str, dict[str, int]] = {
    "tiny": {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 500},
    "gpt2-12M": {"n_embd": 384, "n_layer": 6, "n_head": 6, "vocab_size": 4000},
    "gpt2-small": {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257},
}
"""Of GPT-2s: 12.2 million numbers, and GPT-2 small's 124 million."""


def input_text(**values: Any) -> str:
    """Return an input file's text: `TEMPLATE` with `DEFAULTS`, or other values."""
    return TEMPLATE.format(**{**DEFAULTS, **values})


def save_gpt2(folder: Path, length: int = 25, **shape: int) -> None:
    """Write a GPT-2 of random weights into a folder, as Hugging Face does."""
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(1)
    config = GPT2Config(n_positions=length, bos_token_id=0, eos_token_id=0, **shape)
    GPT2LMHeadModel(config).save_pretrained(folder)


def save_olmo_1b(folder: Path, dtype: str) -> None:
    """Write a model of OLMo-1B's shape with random weights: 1.18 billion numbers."""
    from transformers import OlmoConfig, OlmoForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(1)
    config = OlmoConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=16,
        vocab_size=50304, tie_word_embeddings=True, dtype=dtype,
    )  # fmt: skip
    with_type = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))  # never there in float32
    try:
        OlmoForCausalLM(config).save_pretrained(folder)
    finally:
        torch.set_default_dtype(with_type)


def clock() -> float:
    """Return seconds: of the CPU on one thread, so that what else runs counts little."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def machine() -> str:
    """Return what a table was seen on, in words."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{os.cpu_count()} cores, {names[0]}, {gpu}, load {os.getloadavg()[0]:.1f} before"


def launch(
    words: list[str], ranks: int, script: str | None = None, timeout: float = 900
) -> subprocess.CompletedProcess[str]:
    """Run the program, or a script, on some ranks to its end; one thread a rank.

    Raises
    ------
    RuntimeError
        It failed; the text is what it printed.
    """
    launcher = run_tools.mpirun(ranks) if ranks > 1 else []
    program = [script] if script is not None else ["-m", "omniinput_hpc"]
    done = subprocess.run(
        [*launcher, sys.executable, *program, *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        env={**run_tools.environment(), "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done


def write_json(path: Path | None, rows: Any) -> None:
    """Write what a benchmark found, where a path was given."""
    if path is not None:
        path.write_text(json.dumps(rows, indent=1))
