"""[space] allowed = "tokenizer": all that a run draws, counts and claims is of the allowed inputs.

The tokenizer of a model of 29 values knows five of them, with holes between. Of four sites that is
a space of 625 inputs, which is enumerated.
"""

import itertools
import json

import numpy as np
import pytest
import torch
from language_folders import V, save_classifier, save_decoder
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from omniinput_hpc.cli import run as launch
from omniinput_hpc.cli import verify
from omniinput_hpc.config import CausalLm, SequenceClassifier
from omniinput_hpc.config.space import Space
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.models import space_of
from omniinput_hpc.models.language import causal_lm, hf_folder, sequence_classifier
from omniinput_hpc.runfile.reader import open_run

IDS, D = [1, 4, 9, 16, 28], 4
KNOWN = 'space.allowed="tokenizer"'
INPUT = """
[run]
output = "{output}"
seed = 3
rounds = 12
burn_in = 4
[model]
kind = "causal-lm"
path = "{folder}"
length = 4
[sampler]
walkers = 16
steps = 5
exchanges = 2
[ladder]
betas = [0.0, 1.5, 2.5]
[kernel]
name = "metropolis"
[bins]
lower = 0.0
upper = 40.0
width = 0.5
[samples]
every = 5
"""
ONE_RUNG = "ladder.betas=[0.0]"
METHODS = {
    "metropolis": [],
    "lm-conditional": ['kernel.name="lm-conditional"'],
    "gibbs-with-gradients": ['kernel.name="gibbs-with-gradients"'],
    "ancestral": [
        'kernel.name="lm-conditional"',
        'sampler.method="ancestral"',
        "samples.every=1",
        "ladder.betas=[0.0, 1.5, 3.0]",
    ],
    "wang-landau": ['sampler.method="wang-landau"', ONE_RUNG, "run.burn_in=20", "run.rounds=24"],
}


@pytest.fixture
def folder(tmp_path):
    """A decoder whose tokenizer has holes; the values without a token are the likely ones."""
    return with_holes(save_decoder("llama", tmp_path / "model", scale=6.0))


def with_holes(folder):
    ids = dict(zip("abcde", IDS, strict=True))
    tokenizer = Tokenizer(models.BPE(ids, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def start(folder, *keys, name="run", code=0):
    path = folder.parent / f"{name}.h5"
    toml = folder.parent / f"{name}.toml"
    toml.write_text(INPUT.format(output=path, folder=folder))
    words = [word for key in keys for word in ("--set", key)]
    assert launch.main([str(toml), *words]) == code
    return path


def truth(folder, edges):
    """Return ln of how many allowed inputs have their output in each bin."""
    model = causal_lm.build(CausalLm(kind="causal-lm", path=str(folder), length=D), "cpu")
    x = torch.tensor(list(itertools.product(IDS, repeat=D)))
    with np.errstate(divide="ignore"):
        return np.log(np.histogram(model.output(x).numpy(), edges)[0])


def test_ids_and_values():
    space = Space(29, IDS)
    assert space.n_values == 5
    np.testing.assert_array_equal(space.to_ids(np.array([[0, 4], [2, 1]])), [[1, 28], [9, 4]])
    np.testing.assert_array_equal(space.to_values(np.array([28, 1, 0, 29, -1])), [4, 0, -1, -1, -1])
    assert space.to_ids(np.array([4], np.uint8)).dtype == np.uint8
    everything = Space(29)
    x = np.array([3, 28])
    assert everything.n_values == 29 and everything.to_ids(x) is x and everything.to_values(x) is x
    assert space.same_as(Space(29, IDS)) and not space.same_as(Space(29, IDS[:-1]))
    assert not space.same_as(everything) and everything.same_as(Space(29))
    for wrong in ([4, 1], [1, 29], [-1, 2]):
        with pytest.raises(ValueError, match="do not ascend"):
            Space(29, wrong)


@pytest.mark.parametrize("prefix", [None, [3, 7]])
def test_a_decoder_of_some_values_is_the_whole_one_at_their_tokens(folder, prefix):
    options = CausalLm(kind="causal-lm", path=str(folder), length=D, prefix=prefix)
    whole, some = (causal_lm.build(options, "cpu", allowed) for allowed in (None, "tokenizer"))
    assert space_of(some).allowed.tolist() == IDS and some.n_values == 5
    x = torch.randint(5, (6, D), generator=torch.Generator().manual_seed(1))
    ids = torch.tensor(IDS)
    torch.testing.assert_close(some.output(x), whole.output(ids[x]))
    torch.testing.assert_close(
        some.conditional_logits(x)[1][:, 1:], whole.conditional_logits(ids[x])[1][:, 1:, ids]
    )
    torch.testing.assert_close(
        some.output_and_gradient(x)[1], whole.output_and_gradient(ids[x])[1][..., ids]
    )
    assert some.render(x) == whole.render(ids[x])


def test_a_classifier_of_some_values_is_the_whole_one_at_their_tokens(tmp_path):
    folder = save_classifier(tmp_path)  # 27 tokens of 29 values
    options = SequenceClassifier(kind="sequence-classifier", path=str(folder), length=6, target=1)
    whole, some = (sequence_classifier.build(options, "cpu", a) for a in (None, "tokenizer"))
    x = torch.randint(27, (6, 4), generator=torch.Generator().manual_seed(1))
    assert (some.n_values, whole.n_values) == (27, V)
    torch.testing.assert_close(some.output(x), whole.output(x))
    g = some.output_and_gradient(x)[1]
    torch.testing.assert_close(g, whole.output_and_gradient(x)[1][..., :27])
    assert hf_folder.preflight(options, allowed="tokenizer")["n_values"] == 27


@pytest.mark.slow
@pytest.mark.parametrize("method", [
    # its gradients are tested above, and it moves as Metropolis does
    pytest.param(name, marks=[pytest.mark.release] * (name == "gibbs-with-gradients"))
    for name in METHODS
])  # fmt: skip
def test_every_method_counts_the_allowed_inputs(folder, method, capsys):
    path = start(folder, KNOWN, *METHODS[method])
    with open_run(path) as run:
        x = np.concatenate([run.round(r).samples_x.reshape(-1, D) for r in range(run.rounds)])
        state = run.entry("state/x")
        density = density_of_run(run.data)
        expected_b = truth(folder, run.edges)
        assert (run.n_values, run.n_ids) == (5, V)
        assert run.entry("space/allowed").tolist() == IDS and x.dtype == np.uint8
    assert set(np.unique(x)) == set(IDS) == set(np.unique(state))
    seen = np.isfinite(density.log_g_b)
    assert density.absolute and np.isfinite(expected_b[seen]).all()
    assert np.logaddexp.reduce(density.log_g_b[seen]) == pytest.approx(np.log(625), abs=0.02)
    often = expected_b >= np.log(5)  # a short run may not meet rarer ones often enough
    error_b = np.hypot(density.log_g_error_b[often], 0.02)
    assert often.sum() > 10 and (error_b < 1.0).all()
    assert (np.abs(density.log_g_b - expected_b)[often] < 4.5 * error_b).all()
    # A run of all values meets others, and counts another space: the checks above would fail
    other = start(folder, *METHODS[method], "run.rounds=2", "run.burn_in=4", name="whole")
    with open_run(other) as run:
        x = run.round(0).samples_x
        whole = density_of_run(run.data)
        assert "space/allowed" not in run._file and "n_ids" not in run._file.attrs
    assert not set(np.unique(x)) <= set(IDS)
    seen = np.isfinite(whole.log_g_b)
    assert np.logaddexp.reduce(whole.log_g_b[seen]) > np.log(625) + 5


@pytest.mark.slow
def test_a_run_of_some_values_goes_on_is_verified_and_refused_with_another_tokenizer(folder):
    path = start(folder, KNOWN, "run.rounds=4")
    whole = start(folder, KNOWN, "run.rounds=8", name="whole")
    start(folder, KNOWN, "run.rounds=8")
    with open_run(path) as one, open_run(whole) as other:
        for name in ("samples/x", "samples/z", "state/x", "histogram/counts"):
            np.testing.assert_array_equal(one.entry(name), other.entry(name))
    assert verify.verify_file(path, 50)[1] == []
    start(folder, "run.rounds=9", code=2)  # the key belongs to the run
    file = folder / "tokenizer.json"
    file.write_text(file.read_text().replace('"b":4', '"b":5').replace('"b": 4', '"b": 5'))
    assert hf_folder.preflight(options_of(folder), allowed="tokenizer")["n_values"] == 5
    start(folder, KNOWN, "run.rounds=9", code=2)
    assert "but other tokens" in verify.verify_file(path, 50)[1][0]


def options_of(folder):
    return CausalLm(kind="causal-lm", path=str(folder), length=D)


def test_where_the_key_has_no_meaning_it_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r'space\.allowed = "tokenizer" needs a tokenizer in '):
        hf_folder.preflight(options_of(folder), allowed="tokenizer")
    json_of_one = json.dumps({"version": "1.0", "added_tokens": [], "model": {
        "type": "WordLevel", "vocab": {"a": 3}, "unk_token": "a"}})  # fmt: skip
    (folder / "tokenizer.json").write_text(json_of_one)
    with pytest.raises(UserError, match=r"of the 29 values of the model in .* 1 stand for a token"):
        hf_folder.preflight(options_of(folder), allowed="tokenizer")
    start(folder, KNOWN, 'model={kind="python", factory="markov_model:markov"}', code=2)
