"""Moves per second of decoders by prefix states, beside those by whole inputs.

    .venv/bin/python tests/benchmarks/prefix_states.py [--types mamba2 ...] [--hidden 32]
        [--layers 2] [--length 24] [--walkers 16] [--kernel lm-conditional] [--moves 20]

Each type's model has random weights, and is as small as in tests/campaigns/architectures, unless
--hidden and --layers say otherwise. Both ways are timed in turn, in seconds of the CPU on one
thread. z and all rows of whole inputs are compared as well.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(TESTS / "campaigns"), str(TESTS / "helpers"), str(TESTS.parent)]

import torch
from architectures import folders
from moves import seconds_per_move

from omniinput_hpc.config import CausalLm
from omniinput_hpc.models.language import causal_lm, hf_decoder

TYPES = ("qwen3_next", "olmo_hybrid", "mamba2", "olmoe", "gpt_oss")


def make_folder(model_type: str, options: argparse.Namespace, folder: Path) -> None:
    """Write a model of a type; `folders.SIZES` holds the sizes of small ones."""
    if options.hidden:
        wide = dict.fromkeys(folders.WIDTHS, options.hidden)
        inner = {"intermediate_size": 4 * options.hidden, "moe_intermediate_size": options.hidden}
        states = {"head_dim": 64, "state_size": 128, "linear_key_head_dim": 64,
                  "linear_value_head_dim": 64, "chunk_size": 64, "vocab_size": 8192}  # fmt: skip
        heads = options.hidden // 64
        folders.SIZES.update(wide | inner | states | dict.fromkeys(folders.HEADS, heads))
        folders.SIZES.update(dict.fromkeys(folders.DEPTHS, options.layers))
        folders.SIZES.update(num_key_value_heads=heads, linear_num_key_heads=heads,
                             linear_num_value_heads=heads)  # fmt: skip
        folders.OWN["mamba2"] = {"num_heads": 2 * heads, "head_dim": 64, "n_groups": 1}
        folders.MOST_NUMBERS = 400_000_000
    folders.make(model_type, "causal", folder)


def none(lm: Any, *rest: Any) -> None:
    """Return no decoder, so that whole inputs are evaluated."""


def compare(folder: Path, length: int) -> tuple[int, float, float]:
    """Return the weights of a model, and how far z and rows are from those of whole inputs.

    z is of proposals that share half of their sites with other inputs, rows are of single tokens.
    """
    options = CausalLm.model_validate({"kind": "causal-lm", "path": str(folder), "length": length})
    model = causal_lm.build(options, "cpu")
    assert model.kv_cache is not None
    x = torch.randint(model.n_values, (8, length), generator=torch.Generator().manual_seed(1))
    cache, half = model.kv_cache(len(x)), length // 2
    cache.evaluate(torch.cat([x[:, :half], x.roll(1, 0)[:, half:]], dim=1))
    z = cache.propose(x, half)
    cache.begin_anew()
    rows = []
    for t in range(length - 1):
        cache.extend(x[:, t])
        rows.append(cache.row())
    vars(model)["_decoder"] = None
    z_too, rows_too = model.conditional_logits(x)
    apart = (torch.stack(rows, dim=1) - rows_too[:, 1:]).abs().max()
    n_weights = sum(weights.numel() for weights in model.lm.parameters())
    return n_weights, float((z - z_too).abs().max()), float(apart)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", nargs="+", default=TYPES)
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--length", type=int, default=24)
    parser.add_argument("--walkers", type=int, default=16)
    parser.add_argument("--kernel", default="lm-conditional")
    parser.add_argument("--moves", type=int, default=20)
    options = parser.parse_args()
    make = hf_decoder.make
    print(
        f"{'type':14}{'weights':>13}{'states/s':>10}{'whole/s':>10}{'times':>7}{'z':>9}{'rows':>9}"
    )
    for model_type in options.types:
        with tempfile.TemporaryDirectory() as folder:
            make_folder(model_type, options, Path(folder))
            n, of_z, of_rows = compare(Path(folder), options.length)
            case = [folder, options.length, options.walkers, 12.0, options.kernel, options.moves]
            seconds = []
            for decoder_of in (make, none):
                hf_decoder.make = decoder_of
                seconds.append(statistics.mean(seconds_per_move(case, 1)))
            hf_decoder.make = make
        states, whole = (1 / s for s in seconds)
        print(f"{model_type:14}{n:13,}{states:10.1f}{whole:10.1f}{states / whole:7.2f}"
              f"{of_z:9.1e}{of_rows:9.1e}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
