"""Every file of inputs/, with tiny weights where its model is not here, from check to report."""

import json
import re
import shutil

import language_folders
import pytest
import torch
from run_tools import ROOT, run
from safetensors.torch import save_file
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
)

from omniinput_hpc.config import input_file
from omniinput_hpc.models.images.data_sets import CIFAR_SHAPE
from omniinput_hpc.models.images.files import Architecture
from omniinput_hpc.models.images.networks import ImageNetwork
from omniinput_hpc.sampling.restart import least_burn_in

FILES = sorted((ROOT / "inputs").glob("*.toml"))
POSITIONS = 128
LLAMA_LIKE = {**language_folders.LLAMA_LIKE, "max_position_embeddings": POSITIONS}
LANGUAGE_MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(n_positions=POSITIONS, n_embd=16, n_layer=2, n_head=2, vocab_size=50_257)
    ),
    "olmo": lambda: OlmoForCausalLM(OlmoConfig(**LLAMA_LIKE | {"vocab_size": 50_304})),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA_LIKE | {"vocab_size": 32_000})),
    "smollm2": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA_LIKE | {"vocab_size": 49_152})),
    "distilbert": lambda: DistilBertForSequenceClassification(
        DistilBertConfig(
            vocab_size=30_522, max_position_embeddings=POSITIONS, n_layers=2, n_heads=2, dim=16,
            hidden_dim=24, num_labels=2,
        )
    ),
}  # fmt: skip
HARMLESS = (
    "the trial moves found nothing", "the trial had time for", "no rung at beta = m",
    "rungs have kappa or lambdas",
)  # fmt: skip
CLASSES = {"cifar10-binary": 1, "cifar10": 10, "cifar100": 100}


def stand_in(stem, folder):
    """Write tiny random weights in place of those that a file needs; return their folder."""
    torch.manual_seed(1)
    if stem in CLASSES:
        network = ImageNetwork(Architecture("resnet", CIFAR_SHAPE, CLASSES[stem], 4))
        folder.mkdir()
        (folder / "model.json").write_text(json.dumps(network.architecture.as_json()))
        save_file(network.state_dict(), folder / "model.safetensors")
        return folder
    make = next(make for name, make in LANGUAGE_MODELS.items() if stem.startswith(name))
    make().save_pretrained(folder)
    language_folders.save_tokenizer(folder)
    if stem.startswith("distilbert"):
        (folder / "tokenizer.json").unlink()
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(30_517))]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return folder


def sets(keys):
    return [word for key in keys for word in ("--set", key)]


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_three_rounds_and_their_analysis(file, tmp_path):
    config = input_file.load(file, [])
    path, run_file = str(getattr(config.model, "path", "")), tmp_path / "run.h5"
    here = (ROOT / path / "model.safetensors").is_file()  # trained: its rungs share fewer bins
    # as in the file: its z jumps between rungs, which fewer walkers would not see on both sides
    own = file.stem == "mlp-gen-mnist"
    walkers = config.sampler.walkers if own else 16 if here else 2 * config.sampler.blocks
    keys = [f"run.output={run_file}", f"sampler.walkers={walkers}"]
    if path and not here:
        keys.append(f"model.path={stand_in(file.stem, tmp_path / 'model')}")
    checked = run(file, *sets(keys), "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "warning" not in checked.stdout + checked.stderr, checked.stdout + checked.stderr
    notes = re.findall(r"^judged +(.*)", checked.stdout + checked.stderr, re.M)
    assert notes and all(note.startswith(HARMLESS) for note in notes), notes
    ahead = getattr(config.kernel, "look_ahead", False)  # its search in burn-in takes long
    many = config.ladder is not None and len(config.ladder.beta_k) > 64  # neighbours are close
    steps = 1 if not here else 2 if many else 8 if ahead else 40
    tuned = config.ladder is not None and config.ladder.tune
    learns = ahead or config.sampler.method == "wang-landau"
    burn_in = least_burn_in(exchanges=1) if tuned else 4 if learns else 1
    keys += [
        "run.rounds=3", f"run.burn_in={burn_in}", "sampler.exchanges=1",
        f"sampler.steps={steps}", "samples.every=1",
    ]  # fmt: skip
    sampled = run(file, *sets(keys))
    assert sampled.returncode == 0, sampled.stderr
    for verb in ("reweight", "diagnose", "representatives", "report"):
        done = run(verb, run_file)
        assert done.returncode == 0, (verb, done.stderr)
    shutil.rmtree(tmp_path)
