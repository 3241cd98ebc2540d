"""`model.engine = "openvino"` gives torch's outputs, and refuses what it cannot compute."""

import gc
import importlib.util
import os
import signal

import pytest
import torch
from language_folders import DECODERS, save_classifier, save_decoder

from omniinput_hpc.config import CausalLm, SequenceClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import (
    causal_lm,
    hf_checks,
    hf_folder,
    openvino_engine,
    sequence_classifier,
)

D, W = 7, 5


def causal(folder, **keys):
    return CausalLm(kind="causal-lm", path=str(folder), length=D, engine="openvino", **keys)


def check(built, options):
    """Compare with torch, whose results for these inputs differ from each other."""
    model, other = (
        built(options, "cpu"),
        built(options.model_copy(update={"engine": "torch"}), "cpu"),
    )
    x = torch.randint(
        model.n_values, (W, model.n_sites), generator=torch.Generator().manual_seed(1)
    )
    z = model.output(x)
    rounding = 2e-5 if options.dtype == "float32" else 0.05
    torch.testing.assert_close(z, other.output(x), atol=rounding, rtol=rounding)
    assert z.dtype == torch.float32 and z.std() > 1e-3
    assert model.packed_bytes >= sum(weights.nbytes for weights in model.lm.parameters())
    assert torch.equal(z[:2], model.output(x[:2])) and torch.equal(z, model.output(x))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("keys", [{}, {"prefix": [3, 4]}, {"tokens": "no-special"}])
def test_causal_models(dtype, keys, tmp_path):
    check(causal_lm.build, causal(save_decoder("llama", tmp_path), dtype=dtype, **keys))


def test_classifiers(tmp_path):
    options = SequenceClassifier(
        kind="sequence-classifier", path=str(save_classifier(tmp_path)), length=8, target=1,
        output="log-odds", engine="openvino",
    )  # fmt: skip
    check(sequence_classifier.build, options)


@pytest.mark.parametrize("kind", sorted(DECODERS))
def test_other_decoders(kind, tmp_path):
    check(causal_lm.build, causal(save_decoder(kind, tmp_path)))


def handled_signal():
    """Return whether a copy of this process survives a signal that it handles."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGUSR1, lambda *_: None)
        os.kill(os.getpid(), signal.SIGUSR1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def test_signals_are_handled_after_models_that_are_gone(tmp_path):
    options = causal(save_decoder("gpt2", tmp_path))
    first = causal_lm.build(options, "cpu")
    second = causal_lm.build(options, "cpu")
    del first  # before the second
    gc.collect()
    assert handled_signal()
    del second
    gc.collect()
    assert handled_signal()


def test_other_outputs_are_refused(tmp_path, monkeypatch):
    folder, right = save_decoder("llama", tmp_path), openvino_engine._compile

    def wrong(*args):
        evaluate = right(*args)
        return lambda tokens: evaluate(tokens) + 0.01

    monkeypatch.setattr(openvino_engine, "_compile", wrong)
    with pytest.raises(UserError, match="its outputs are not those of torch"):
        causal_lm.build(causal(folder), "cpu")


def test_what_is_missing_is_said_before_the_model_is_loaded(tmp_path, monkeypatch):
    folder = save_decoder("llama", tmp_path)
    with pytest.raises(UserError, match=r"needs model\.dtype"):
        hf_folder.preflight(causal(folder, dtype="float16"))
    find = importlib.util.find_spec
    monkeypatch.setattr(hf_checks, "find_spec", lambda n: None if n == "openvino" else find(n))
    with pytest.raises(UserError, match="pip install openvino"):
        hf_folder.preflight(causal(folder))
    with pytest.raises(UserError, match=r"set run\.device"):
        openvino_engine.compiled(torch.nn.Linear(1, 1), [], "cuda:0", "a model")
