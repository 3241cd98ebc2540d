"""Recorded inputs as a folder of Hugging Face's datasets, which loads it."""

import sys

import numpy as np
import pytest
from script_tools import is_plain

import omniinput_hpc as oi
from omniinput_hpc.annotation.join import join_scores
from omniinput_hpc.annotation.tasks import read_key

BY = ("--scores", "good.scores.ann.jsonl", "good.judge-scores.ben.jsonl")


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Return a way to load a folder without the net, and with all caches in the test's folder."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    import datasets

    datasets.disable_progress_bars()
    return lambda folder: datasets.load_dataset(folder, cache_dir=str(tmp_path / "cache"))["train"]


@pytest.mark.slow
def test_datasets_loads_it(export, load, tmp_path):
    code, out, err = export("datasets", *BY)
    assert (code, err) == (0, "") and out.splitlines()[-1] == "good.dataset/README.md"
    rows = load("good.dataset")
    with oi.open("good.h5") as run:
        inputs, fingerprint = run.samples(), run.reader.fingerprint
    for name in ("x", "z", "round", "rung", "beta", "log_weight"):
        np.testing.assert_array_equal(rows[:][name], getattr(inputs, name))
    assert rows[0]["text"] == " ".join(map(str, inputs.x[0]))
    weight = np.exp(inputs.log_weight - inputs.log_weight.max())
    mean = np.average(np.array(rows[:]["x"])[:, 0] == 0, weights=weight)
    assert mean == pytest.approx(0.25, abs=0.02)  # 4 values, all inputs alike

    joined = join_scores(fingerprint, [tmp_path / name for name in BY[1:]]).scored
    key = read_key(tmp_path / "good.tasks.key.jsonl")
    xs = dict.fromkeys(tuple(i.x) for i in key.items if i.gold is None)
    for name, score_i in zip(joined.annotators, joined.score_ai, strict=True):
        given = dict(zip(xs, score_i, strict=True))
        found = np.array(rows[:][f"score_{name}"], dtype=float)
        wanted = [given.get(tuple(x), np.nan) for x in inputs.x.tolist()]
        np.testing.assert_allclose(found, wanted)
        assert np.isfinite(found).any() and np.isnan(found).any()
    assert export("datasets")[0] == 0  # anew, for the same cache
    assert not [name for name in load("good.dataset").column_names if name.startswith("score_")]


def test_the_card_says_what_the_columns_are(export, tmp_path):
    assert export("datasets")[0] == 0
    card = (tmp_path / "good.dataset/README.md").read_text()
    assert card.startswith('---\npretty_name: "inputs recorded in good.h5"\n')
    assert "- converged: yes" in card and "represent all inputs equally |" in card
    for name in ("x", "text", "z", "round", "rung", "beta", "log_weight"):
        assert f"| `{name}` |" in card
    assert "score_" not in card
    assert export("datasets", *BY)[0] == 0  # anew
    assert (
        "| `score_ben` | mean score, 0 to 1, by ben"
        in (tmp_path / "good.dataset/README.md").read_text()
    )


def test_another_folder_s_readme_is_kept(export, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/README.md").write_text("mine")
    code, _, err = export("datasets", "--output", "mine")
    assert is_plain(code, err, "mine/README.md belongs to something else"), err
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["README.md"]


def test_without_the_package_the_extra_is_named(export, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = export("datasets")
    assert is_plain(code, err, "not installed: python -m pip install '.[export]'"), err
    assert not (tmp_path / "good.dataset").exists()
