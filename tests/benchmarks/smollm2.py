"""SmolLM2-135M: z, conditionals and the KV cache against Hugging Face's own, on 100 inputs.

    .venv/bin/python tests/benchmarks/smollm2.py [--inputs 100] [--folder FOLDER]

Half of the inputs are uniformly random, half are drawn from the model itself. Printed are the
largest differences of z from the loss that Hugging Face's model returns with labels, of the rows of
conditional_logits from its log-softmax, and of the KV cache's z and rows after a suffix was
replaced. Ends with 1 where one is above 1e-4. First, once: python -m omniinput_hpc.zoo.smollm2
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from omniinput_hpc.config import CausalLm
from omniinput_hpc.kernels.independent import AutoregressiveSampler
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.models import offers_of
from omniinput_hpc.models.language import causal_lm
from omniinput_hpc.rng import generator
from omniinput_hpc.tempering.ensembles import Canonical

ROOT = Path(__file__).resolve().parents[2]
LENGTH, BATCH, LIMIT = 25, 10, 1e-4


def inputs_of(model: object, n: int) -> torch.Tensor:
    """Return n inputs, int64 [n, D]: half uniform, half the model's own."""
    random = torch.Generator().manual_seed(1)
    uniform = torch.randint(model.n_values, (n // 2, LENGTH), generator=random)
    size = n - n // 2
    sampler = AutoregressiveSampler(model, size)
    stream = DeviceStream(generator(1, "moves", 0, 0, 0), torch.device("cpu"), size * LENGTH)
    start = sampler.start(torch.zeros((size, LENGTH), dtype=torch.int64), torch.zeros(size))
    state, _ = sampler.step(start, Canonical(LENGTH - 1.0), stream)
    return torch.cat([uniform, state.x])


@torch.no_grad()
def main() -> int:
    """Print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100)
    parser.add_argument("--folder", type=Path, default=ROOT / "inputs/models/smollm2-135m")
    options = parser.parse_args()
    theirs = AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32).eval()
    ours = causal_lm.build(
        CausalLm(kind="causal-lm", path=str(options.folder), length=LENGTH), "cpu"
    )
    offers, x = offers_of(ours), inputs_of(ours, options.inputs)
    largest = dict.fromkeys(["z", "rows", "z by KV cache", "rows by KV cache"], 0.0)

    def note(name: str, difference: torch.Tensor) -> None:
        largest[name] = max(largest[name], float(difference.abs().nan_to_num(nan=torch.inf).max()))

    cache = offers.kv_cache(BATCH)
    for part in x.split(BATCH):
        if len(part) < BATCH:
            break
        loss = torch.stack([theirs(input_ids=row[None], labels=row[None]).loss for row in part])
        rows = theirs(input_ids=part).logits.log_softmax(-1)[:, :-1]
        note("z", ours.output(part) - loss)
        note("rows", offers.conditional_logits(part)[1][:, 1:] - rows)
        other = part.roll(1, 0)  # the cache is filled with other suffixes, which are then replaced
        cache.evaluate(torch.cat([part[:, :9], other[:, 9:]], dim=1))
        note("z by KV cache", cache.propose(part, 9) - loss)
        cache.accept(torch.ones(BATCH, dtype=torch.bool))
        kept = torch.cat(list(cache.current_rows(1, LENGTH)))  # [k, W, V]
        note("rows by KV cache", kept.transpose(0, 1) - rows)
    print(f"{len(x)} inputs, z from {ours.output(x).min():.3f} to {ours.output(x).max():.3f}")
    for name, value in largest.items():
        print(f"largest difference of {name}: {value:.2g}")
    return 1 if max(largest.values()) > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
