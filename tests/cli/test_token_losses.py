"""Losses of tokens: their mean is z, they colour a report, and some models have none."""

import string

import h5py
import numpy as np
import pytest
from hostile_words import write_model_folder
from language_folders import save_decoder
from run_files import write_run
from script_tools import inside, undrawn
from strict_page import problems_of
from tokenizers import Tokenizer
from tokenizers.models import BPE

from omniinput_hpc import models
from omniinput_hpc.cli import token_losses
from omniinput_hpc.cli.verbs import report
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import batches
from omniinput_hpc.runfile.reader import open_run

__all__ = ["inside", "undrawn"]


def run_of(path, model):
    """Write a run file of another model than its samples are from."""
    write_run(path, walkers=8, rounds=2)
    with h5py.File(path, "r+") as file:
        toml = file.attrs["config"]
        file.attrs["config"] = toml.replace('kind = "causal-lm"\npath = "none"\nlength = 8', model)
    return open_run(path)


def test_the_mean_loss_of_a_text_is_its_output(tmp_path):
    model = 'kind = "causal-lm"\npath = "inputs/models/toy"\nlength = 8'
    with run_of(tmp_path / "run.h5", model) as run:
        x = np.random.default_rng(1).integers(10, size=(5, 8))
        losses = token_losses.losses_of(run, x)
        z = batches.evaluate(models.build(run.config, "cpu"), x, 5, "cpu")
    assert np.isnan(losses[:, 0]).all()
    assert losses[:, 1:].mean(axis=1) == pytest.approx(z, abs=1e-5)


def test_in_a_restricted_vocabulary_too(tmp_path):
    """Probabilities stay those among all values, and files hold ids."""
    folder = save_decoder("gpt2", tmp_path / "lm")
    ids = np.random.default_rng(1).integers(3, 26, size=(5, 8))
    whole = f'kind = "causal-lm"\npath = "{folder}"\nlength = 8'
    with run_of(tmp_path / "whole.h5", whole) as run:
        expected = token_losses.losses_of(run, ids)
    words = {letter: number for number, letter in enumerate(string.ascii_lowercase, 3)}
    for more, x in (
        ('\ntokens = "no-special"', ids - 2),
        ('\n[space]\nallowed = "tokenizer"', ids),
    ):
        with run_of(tmp_path / "run.h5", whole + more) as run:
            model = models.build(run.config, "cpu")
            losses = token_losses.losses_of(run, x)
            z = batches.evaluate(model, models.space_of(model).to_values(x), 5, "cpu")
        assert losses[:, 1:].mean(axis=1) == pytest.approx(z, abs=1e-5)
        np.testing.assert_allclose(losses, expected, atol=1e-5)
        Tokenizer(BPE(words, [])).save(str(folder / "tokenizer.json"))  # the first 3 ids: none


def test_a_model_without_probabilities_is_refused(tmp_path):
    model = 'kind = "python"\nfactory = "small_models:make"'
    with (
        run_of(tmp_path / "run.h5", model) as run,
        pytest.raises(UserError, match="tokens have no loss"),
    ):
        token_losses.losses_of(run, np.zeros((2, 8), dtype=np.int64))


@pytest.mark.slow
def test_tokens_are_coloured_and_stay_text(tmp_path, inside, undrawn, monkeypatch):
    """A token of 7.5 nats has class t7; hostile tokens are escaped; masks are refused."""
    write_model_folder(tmp_path / "none")
    write_run(tmp_path / "one.h5", walkers=16, seed=1)
    losses = np.r_[np.nan, np.full(6, 7.5), 99.0]
    monkeypatch.setattr(report, "losses_of", lambda run, x: np.tile(losses, (len(x), 1)))
    assert inside("report.py", "one.h5", "--token-losses", "--output", "a.html")[0] == 0
    html = (tmp_path / "a.html").read_text(encoding="utf-8")
    bad, words = problems_of(html)
    assert not bad and "coloured by their loss" in words
    assert html.count('class="t7" title="loss 7.50"') == 6 * html.count('class="t9" title="loss 99')
    code, _, err = inside("report.py", "one.h5", "--token-losses", "--mask")
    assert code == 2 and "--mask" in err
