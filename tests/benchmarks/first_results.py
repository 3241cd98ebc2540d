"""From a model of one's own to a curve and a comparison, by the commands of the README, timed.

    .venv/bin/python tests/benchmarks/first_results.py [--models gpt2 cnn] [--errors 0.3]

Two random GPT-2s (300 tokens, inputs of 8), or two small CNNs (6 x 6 pixels of 4 grey levels, one
trained well and one badly): for each `init`, `run` on two ranks of the file as it was written,
`reweight` and `precision-recall` by a rule, then `compare`. A row each: seconds of the clock, exit
code, and the lines that say what was found. Ends with 1 where a run has not converged.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAID = ("converged", "not converged", "AUPR", "side:", "is better", "no model")
GPT2 = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

for name, seed, scale in (("one", 1, 1.0), ("other", 2, 3.0)):
    torch.manual_seed(seed)
    sizes = dict(n_embd=64, n_layer=2, n_head=2, vocab_size=300, n_positions=32)
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    with torch.no_grad():
        model.transformer.wte.weight *= scale
    model.save_pretrained(name)
"""
NETS = """
import torch
from torch import nn


class Net(nn.Module):
    n_values, n_sites = 4, 36

    def __init__(self, device, steps, noise):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(288, 1),
        )
        learning = torch.optim.Adam(self.body.parameters(), 1e-2)
        with torch.enable_grad():
            for _ in range(steps):
                x, y = torch.randint(4, (64, 6, 6)), torch.arange(64) % 2
                cross = x.clone()
                cross[:, 2:4, :] = torch.randint(2, 4, (64, 2, 6))
                cross[:, :, 2:4] = torch.randint(2, 4, (64, 6, 2))
                x = torch.where(y[:, None, None] == 1, cross, x)
                z = self.body(x[:, None] / 3.0)[:, 0]
                loss = nn.functional.binary_cross_entropy_with_logits(z, y.float())
                learning.zero_grad()
                loss.backward()
                learning.step()
        with torch.no_grad():
            for weights in self.body.parameters():
                weights += noise * torch.randn_like(weights)
        self.to(device).requires_grad_(False)

    def output(self, x):
        return self.body(x.view(-1, 1, 6, 6) / 3.0)[:, 0]

    def output_and_gradient(self, x):
        with torch.enable_grad():
            hot = nn.functional.one_hot(x, 4).float().requires_grad_()
            image = (hot * torch.arange(4.0, device=x.device)).sum(-1)
            z = self.body(image.view(-1, 1, 6, 6) / 3.0)[:, 0]
            (gradient,) = torch.autograd.grad(z.sum(), hot)
        return z.detach(), gradient


def one(device):
    return Net(device, 300, 0.0)


def other(device):
    return Net(device, 20, 0.1)
"""
RULES = """
import numpy as np


def quarter(x):
    return (x.sum(axis=1) % 4 == 0).astype(float)


def cross(x):
    image = x.reshape(-1, 6, 6)
    arms = [image[:, 2:4, :].reshape(len(x), -1), image[:, :, 2:4].reshape(len(x), -1)]
    return (np.concatenate(arms, axis=1).mean(axis=1) >= 2.2).astype(float)
"""
KINDS = {
    "gpt2": (["one", "other"], ["--length", "8"], "rules:quarter"),
    "cnn": (["nets:one", "nets:other"], ["--side", "high"], "rules:cross"),
}


def called(folder: Path, launcher: list[str], *words: str) -> str:
    """Run a verb in a folder, print its row, and return what it wrote."""
    begin = time.monotonic()
    done = subprocess.run(
        [*launcher, sys.executable, "-m", "omniinput_hpc", *words],
        cwd=folder, text=True, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    text = done.stdout + done.stderr
    print(f"{time.monotonic() - begin:7.1f} s  exit {done.returncode}  {' '.join(words)}")
    for line in text.splitlines():
        if any(word in line for word in SAID):
            print(f"           {line}")
    sys.stdout.flush()
    if done.returncode:
        raise RuntimeError(text[-2000:])
    return text


def first_results(kind: str, aim: list[str], folder: Path) -> bool:
    """Go from two models to their comparison; return whether both runs have converged."""
    for file, text in (("gpt2.py", GPT2), ("nets.py", NETS), ("rules.py", RULES)):
        (folder / file).write_text(text)
    if kind == "gpt2":
        command = [sys.executable, "gpt2.py"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    models, options, rule = KINDS[kind]
    runs, settled = [], True
    for model in models:
        name = model.rpartition(":")[2]
        called(folder, [], "init", model, *options, *aim, "--output", f"{name}.toml")
        called(folder, ["mpirun", "-n", "2"], "run", f"{name}.toml")
        runs.append(f"runs/{name}.h5")
        settled &= "\nconverged: yes" in called(folder, [], "reweight", runs[-1])
        called(folder, [], "precision-recall", runs[-1], "--rule", rule)
    called(folder, [], "compare", *runs, "--rule", rule)
    return settled


def main() -> int:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--errors", default="0.3", help="init's --errors")
    options = parser.parse_args()
    settled = True
    for kind in options.models:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            settled &= first_results(kind, ["--errors", options.errors], Path(folder))
        print(f"{kind}: {time.monotonic() - begin:.0f} s from two models to their comparison")
    return 0 if settled else 1


if __name__ == "__main__":
    sys.exit(main())
