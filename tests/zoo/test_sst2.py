"""DistilBERT's recipe: a small model learns a made-up SST-2; what is missing is named."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import DistilBertConfig, DistilBertForMaskedLM

from omniinput_hpc.config import SequenceClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import hf_folder, sequence_classifier
from omniinput_zoo import sst2

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "film",
    "of",
    "good",
    "fine",
    "bad",
    "dull",
]
SENTENCES = [
    (f"{first} {word} film {last}", word in ("good", "fine"))
    for word in ("good", "fine", "bad", "dull") for first in ("a", "of") for last in ("", "of a")
]  # fmt: skip


def write(path, rows):
    path.write_text("sentence\tlabel\n" + "".join(f"{s} \t{int(y)}\n" for s, y in rows))


@pytest.fixture
def folders(tmp_path):
    data, base = tmp_path / "SST-2", tmp_path / "base"
    data.mkdir()
    write(data / "train.tsv", SENTENCES * 6)
    write(data / "dev.tsv", SENTENCES)
    torch.manual_seed(0)
    config = DistilBertConfig(
        vocab_size=len(WORDS),
        max_position_embeddings=66,
        n_layers=1,
        n_heads=2,
        dim=16,
        hidden_dim=32,
    )
    DistilBertForMaskedLM(config).save_pretrained(base)
    (base / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    settings = {"tokenizer_class": "BertTokenizer", "model_max_length": 66}
    (base / "tokenizer_config.json").write_text(json.dumps(settings))
    return data, base


@pytest.mark.slow
def test_it_learns_and_what_it_writes_is_sampled(folders, tmp_path, capsys):
    data, base = folders
    out = tmp_path / "distilbert-sst2"
    words = ["--data", str(data), "--base", str(base), "--output", str(out), "--epochs", "12",
             "--rate", "1e-2", "--threads", "1"]  # fmt: skip
    assert sst2.main(words) == 0
    assert (
        "100.00 % of 16 test sentences correct (the papers' model: 91 %)" in capsys.readouterr().out
    )
    assert json.loads((out / "training.json").read_text())["test_accuracy"] == 1.0
    options = SequenceClassifier(
        kind="sequence-classifier", path=str(out), length=10, target=1, output="difference"
    )
    assert hf_folder.preflight(options)["n_values"] == len(WORDS)
    model = sequence_classifier.build(options, "cpu")
    good, bad = torch.full((1, 8), 8), torch.full((1, 8), 10)
    assert model.output(good) > 0 > model.output(bad)
    again = tmp_path / "again"
    sst2.main([*words[:5], str(again), *words[6:]])
    first, second = (load_file(f / "model.safetensors") for f in (out, again))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_is_missing_or_broken_is_named(folders, tmp_path, capsys):
    data, base = folders
    assert sst2.main(["--data", str(tmp_path), "--base", str(base)]) == 2
    assert "train.tsv not found: fetch SST-2 of GLUE" in capsys.readouterr().err
    assert sst2.main(["--data", str(data)]) == 2
    assert "hf download distilbert/distilbert-base-uncased --include" in capsys.readouterr().err
    for text, wanted in (
        ("", "line 1: expected the columns"),
        ("sentence\tlabel\n", "holds no sentences"),
        ("sentence\tlabel\ngood\t1\nbad", "line 3: expected a sentence, a tab, and 0 or 1"),
        ("sentence\tlabel\ngood\t2\n", "line 2: expected"),
        ("index\tsentence\n0\tgood\n", "expected the columns sentence and label"),
    ):
        (data / "train.tsv").write_text(text)
        with pytest.raises(UserError, match=wanted):
            sst2.read_sst2(data, "train")
    (data / "train.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not a text file"):
        sst2.read_sst2(data, "train")
