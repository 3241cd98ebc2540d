"""Folders with rounded or noisy weights: exactly these weights, and nothing half made."""

import json

import pytest
import torch
from language_folders import save_decoder
from safetensors.torch import load_file, save_file

from omniinput_hpc.config import CausalLm
from omniinput_hpc.models.language import causal_lm
from omniinput_zoo import changed_weights


@pytest.fixture
def folder(tmp_path):
    return save_decoder("llama", tmp_path / "model")


def call(folder, output, *words):
    return changed_weights.main([str(folder), "--output", str(output), *words])


def weights(folder):
    return load_file(folder / "model.safetensors")


def test_rounded_weights_are_bfloat16_and_evaluated_in_float32(folder, tmp_path, capsys):
    assert call(folder, tmp_path / "new", "--bfloat16") == 0
    old, new = weights(folder), weights(tmp_path / "new")
    assert old.keys() == new.keys()
    for name, tensor in new.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, old[name].bfloat16().float())
    assert any(not torch.equal(old[name], new[name]) for name in new)
    assert "rounded bfloat16" in capsys.readouterr().out
    about = json.loads((tmp_path / "new" / changed_weights.CHANGED).read_text())
    assert about["rounded"] == "bfloat16"

    x = torch.randint(26, (4, 7), generator=torch.Generator().manual_seed(1))
    z_old, z_new = (
        causal_lm.build(CausalLm(kind="causal-lm", path=str(path), length=7), "cpu").output(x)
        for path in (folder, tmp_path / "new")
    )
    assert 0 < (z_old - z_new).abs().max() < 0.1


def test_noise_is_relative_of_the_given_size_and_seed(folder, tmp_path):
    for name, seed in (("one", 1), ("same", 1), ("two", 2)):
        assert call(folder, tmp_path / name, "--noise", "0.05", "--seed", str(seed)) == 0
    old, new = weights(folder), weights(tmp_path / "one")
    g = torch.cat([(new[n] / old[n] - 1.0).ravel() for n in old if old[n].abs().min() > 0])
    n = g.numel()
    assert n > 1000
    assert abs(float(g.std()) - 0.05) < 4 * 0.05 / (2 * n) ** 0.5
    assert abs(float(g.mean())) < 4 * 0.05 / n**0.5
    same, two = weights(tmp_path / "same"), weights(tmp_path / "two")
    assert all(torch.equal(new[n], same[n]) for n in new)
    assert not any(torch.equal(new[n], two[n]) for n in new if new[n].numel() > 1)


def test_whole_numbers_stay(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"a": torch.arange(9), "b": torch.ones(9) / 3}, folder / "model.safetensors")
    assert call(folder, tmp_path / "new", "--noise", "1") == 0
    assert torch.equal(weights(tmp_path / "new")["a"], torch.arange(9))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--noise", "0"], "--noise 0"),
        (["--noise", "nan"], "--noise nan"),
        (["--bfloat16"], "cannot be read as safetensors"),
    ],
)
def test_mistakes_get_one_sentence_and_leave_nothing(words, said, tmp_path, capsys):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"no weights")
    assert call(folder, tmp_path / "new", *words) == 2
    err = capsys.readouterr().err
    assert said in err and len(err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_no_weights_and_an_output_that_is_there(folder, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert call(tmp_path / "empty", tmp_path / "new", "--bfloat16") == 2
    assert "not a folder of a model" in capsys.readouterr().err
    assert call(folder, tmp_path / "empty", "--bfloat16") == 2
    assert "exists" in capsys.readouterr().err
