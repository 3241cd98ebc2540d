"""Copy a model folder with rounded or noisy weights, to measure the effect of such changes.

``python -m omniinput_hpc.zoo.changed_weights FOLDER --bfloat16 --output NEW`` rounds each weight to
the nearest bfloat16. ``--noise 0.05`` instead multiplies each weight by 1 + 0.05 g, with g drawn
from a standard normal distribution. All floating-point tensors are changed, including norms and
embeddings, and written in float32. Use `[model] dtype = "float32"`, so that activations are not
rounded as well. All other files of the folder are copied.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE, UserError

WEIGHTS = "*.safetensors"
CHANGED = "changed-weights.json"
Change = Callable[[Any], Any]
"""A function from a float32 tensor to the changed one."""


def rounded() -> Change:
    """Return the change that rounds to the nearest bfloat16: 8 significant bits."""
    import torch

    return lambda weights: weights.to(torch.bfloat16).float()


def noisy(level: float, seed: int) -> Change:
    """Return the change that multiplies each number by 1 + level * g, g standard normal.

    The noise depends only on the seed and on the order of the tensors.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)

    def change(weights: Any) -> Any:
        return weights * (1.0 + level * torch.randn(weights.shape, generator=generator))

    return change


def make(folder: Path, output: Path, change: Change, about: dict[str, object]) -> int:
    """Write a copy of a model folder with changed weights; return how many numbers it holds.

    `about` is written to changed-weights.json. The folder appears whole or not at all. Raises a
    `UserError` if there are no readable weights in safetensors, or if `output` exists.
    """
    if output.exists():
        raise UserError(f"--output {output} exists; remove it, or choose another folder")
    files = sorted(folder.glob(WEIGHTS)) if folder.is_dir() else []
    if not files:
        raise UserError(f"{folder}: not a folder of a model with weights in {WEIGHTS}")
    output.parent.mkdir(parents=True, exist_ok=True)
    half_made = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=output.parent))
    try:
        for other in sorted(folder.iterdir()):
            if other.is_file() and other not in files:
                shutil.copyfile(other, half_made / other.name)
        n_numbers = sum(_copy(file, half_made / file.name, change) for file in files)
        text = json.dumps({"from": str(folder), **about}, indent=2) + "\n"
        (half_made / CHANGED).write_text(text, encoding="utf-8")
        half_made.chmod(0o755)
        os.rename(half_made, output)
    finally:
        shutil.rmtree(half_made, ignore_errors=True)
    return n_numbers


def _copy(source: Path, target: Path, change: Change) -> int:
    """Write the changed tensors of a file, ordered by name; return how many numbers they hold."""
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file

    try:
        with safe_open(source, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{source}: cannot be read as safetensors: {error}") from None
    found = {
        name: change(tensor.float()).contiguous() if tensor.is_floating_point() else tensor
        for name, tensor in tensors.items()
    }
    save_file(found, target, metadata={"format": "pt"})
    target.chmod(0o644)
    return sum(tensor.numel() for tensor in found.values())


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m omniinput_hpc.zoo.changed_weights", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="folder of a Hugging Face model")
    parser.add_argument("--output", type=Path, required=True, help="the new folder")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--bfloat16", action="store_true", help="round to the nearest bfloat16")
    how.add_argument("--noise", type=float, metavar="LEVEL", help="relative standard deviation")
    parser.add_argument("--seed", type=int, default=1, help="seed of the noise (default: 1)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run ``python -m omniinput_hpc.zoo.changed_weights``; return 0, or 2 for bad input."""
    args = _arguments(arguments)
    about: dict[str, object] = {"rounded": "bfloat16"}
    try:
        if args.noise is not None:
            if not (math.isfinite(args.noise) and args.noise > 0.0):
                raise UserError(f"--noise {args.noise:g}: expected a finite number above 0")
            about = {"noise": args.noise, "seed": args.seed}
        change = rounded() if args.bfloat16 else noisy(args.noise, args.seed)
        n_numbers = make(args.folder, args.output, change, about)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    how = ", ".join(f"{key} {value}" for key, value in about.items())
    print(f"{args.output}: {n_numbers:,} numbers of {args.folder}, {how}, in float32")
    return EXIT_COMPLETE


if __name__ == "__main__":
    raise SystemExit(main())
