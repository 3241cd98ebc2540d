"""The seven networks of MNIST 0/1 in the repository: what is stored beside them, their size."""

import json

import numpy as np
import pytest
from run_tools import ROOT
from sklearn.metrics import roc_auc_score

from omniinput_hpc.models.images import classifier
from omniinput_zoo import mnist_judges
from omniinput_zoo.image_training import outputs_of
from omniinput_zoo.images import RECIPES, main

NAMES = [name for name in RECIPES if name.endswith("-mnist")]


@pytest.mark.parametrize("name", NAMES)
def test_weights_tell_ones_from_zeros(name):
    folder = ROOT / "inputs/models" / name
    network, about = classifier.load(folder), json.loads((folder / "model.json").read_text())
    assert about["effort"] == "cpu" and about["training"] == RECIPES[name].training
    assert (folder / "model.safetensors").stat().st_size < 2e6
    known = mnist_judges.prototypes().only(0, 1)
    f = outputs_of(network, known.x)[:, 0].numpy()
    assert roc_auc_score(known.y == 1, f) > 0.98
    assert not roc_auc_score(known.y == 0, f) > 0.5  # swapped classes are noticed
    noise = outputs_of(network, mnist_judges.uniform_noise(50).reshape(-1, 784))[:, 0].numpy()
    if RECIPES[name].training == "energy":
        assert noise.max() < f[known.y == 1].min() - 1000  # e^4347 images of noise, few digits
    else:
        assert np.mean((f > 0) == (known.y == 1)) > 0.95


def test_what_cannot_be_trained_is_told(tmp_path, capsys):
    words = ["--data", str(tmp_path), "--output", str(tmp_path / "model")]
    assert main(["cifar10", "--effort", "cpu", *words]) == 2
    assert "--effort cpu: only for networks of MNIST, not for cifar10" in capsys.readouterr().err
    assert main(["mlp-mnist", *words]) == 2
    assert "is missing: fetch it" in capsys.readouterr().err


def test_a_gpu_that_is_not_there_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("omniinput_zoo.images.read_data", lambda recipe, folder: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["mlp-mnist", "--device", "cuda", "--data", str(tmp_path)]) == 2
    assert "--device cuda: torch sees no GPU" in capsys.readouterr().err
