"""The digits family: its weights in the repository are what they claim, and train again."""

import json
import os

import numpy as np
import pytest
import torch
from run_tools import ROOT
from sklearn.metrics import roc_auc_score

from omniinput_hpc.models.images import classifier
from omniinput_hpc.models.images.data_sets import Images, read_digits, split_digits
from omniinput_hpc.models.images.files import Architecture, Shape
from omniinput_zoo import digits, new_parser
from omniinput_zoo.image_training import (
    Effort,
    EnergyEffort,
    accuracy,
    add_noise,
    outputs_of,
    train_classifier,
    train_energy_model,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", digits.MODELS)
def test_weights_reach_what_is_stored_beside_them(name):
    folder = ROOT / "inputs/models" / f"digits-{name}"
    network, about = classifier.load(folder), json.loads((folder / "model.json").read_text())
    _, test = split_digits(read_digits(0, 1))
    if digits.MODELS[name].training == "energy":
        auroc = roc_auc_score(test.y == 1, outputs_of(network, test.x)[:, 0].numpy())
        assert auroc == pytest.approx(about["test_auroc"], abs=1e-3)
        assert auroc > 0.98
    else:
        assert len(test) == 120
        assert accuracy(network, test) == pytest.approx(about["test_accuracy"], abs=1e-6)
        assert about["test_accuracy"] >= 0.99
    assert not accuracy(network, Images(test.x, 1 - test.y)) > 0.5  # swapped classes are noticed


def test_all_weights_together_are_small():
    files = list((ROOT / "inputs/models").glob("digits-*/model.safetensors"))
    assert len(files) == len(digits.MODELS)
    assert sum(file.stat().st_size for file in files) < 2e6


def test_noise_of_varying_severity_stays_within_the_grey_levels():
    x = torch.full((4000, 64), 8)
    noisy = add_noise(x, 17, torch.Generator().manual_seed(0))
    assert noisy.min() == 0 and noisy.max() == 16
    spread = noisy.double().std(dim=1)
    assert spread.min() < 0.3 and spread.max() > 6  # gentle and harsh images, both


@pytest.mark.slow
def test_training_learns_the_digits_again():
    train, test = split_digits(read_digits(0, 1))
    architecture = Architecture("mlp", digits.SHAPE, 1, 32)
    effort = Effort(epochs=15, batch=32, rate=5e-3)
    network = train_classifier(architecture, train, effort, seed=3, name="test")
    assert accuracy(network, test) >= 0.97


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "restart_at_data"), [(1.0, False), (10.0, True)])
def test_contrastive_divergence_finds_a_known_distribution(scale, restart_at_data):
    """Data of black pixels but for one white: the model's own samples become like the data."""
    shape = Shape(3, 3, 1, 2)
    data = Images(np.eye(9, dtype=np.uint8)[np.arange(90) % 9], np.ones(90, np.int64))
    effort = EnergyEffort(
        steps=250, moves=10, chains=64, batch=64, rate=1e-2, output_penalty=1e-3 * scale,
        scale=scale, restart_at_data=restart_at_data,
    )  # fmt: skip
    network, _ = train_energy_model(Architecture("mlp", shape, 1, 32), data, effort, 1, "test")
    x = ((np.arange(512)[:, None] >> np.arange(9)) & 1).astype(np.uint8)
    p = outputs_of(network, x)[:, 0].double().softmax(0).numpy()
    one_white = x.sum(axis=1) == 1
    assert p[one_white].sum() > 0.7  # 9 of 512 inputs; uniform: 0.018
    assert p[one_white].min() > 0.02  # none of them is forgotten


def test_the_rule_tells_ones_from_noise_and_other_digits():
    ones, others = read_digits(1), read_digits(0, 4, 8)
    noise = np.random.default_rng(0).integers(0, 17, (300, 64))
    assert digits.looks_like_one(ones.x).mean() == 1
    assert digits.looks_like_one(others.x).max() == 0
    assert digits.looks_like_one(noise).max() == 0
    shaken = np.clip(ones.x + np.random.default_rng(1).integers(-2, 3, ones.x.shape), 0, 16)
    assert digits.looks_like_one(shaken).mean() > 0.95


@pytest.mark.parametrize(("cores", "threads"), [({0}, 1), ({0, 1, 2}, 2), (None, 2)])
def test_a_training_takes_no_more_threads_than_cores(cores, threads, monkeypatch):
    if cores is None:  # as on macOS
        monkeypatch.delattr(os, "sched_getaffinity")
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
    else:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    assert new_parser("digits", None).parse_args([]).threads == threads
