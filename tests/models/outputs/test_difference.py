"""`difference`: Toy minus Toy-worse on every input, and what is refused."""

import pytest
import torch
from language_folders import WORDS, save_decoder, save_tokenizer
from output_cases import all_inputs, built, config_of, inputs
from run_tools import ROOT

from omniinput_hpc import models
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import table
from omniinput_hpc.models.protocol import offers_of

TOY, WORSE = (
    {"kind": "causal-lm", "path": str(ROOT / "inputs/models" / name)}
    for name in ("toy", "toy-worse")
)


def difference(length, other=WORSE, **keys):
    return built({**TOY, "length": length}, {"name": "difference", "other": other}, **keys)


def losses(lm, x):
    """Return Hugging Face's loss of each input."""
    return torch.stack([lm(input_ids=row[None], labels=row[None]).loss for row in x])


@torch.no_grad()
def test_z_is_one_loss_minus_the_other_on_every_input():
    model = difference(3)
    x = all_inputs(model)
    lms = [model.base.lm, models.build(config_of({**WORSE, "length": 3}, None), "cpu").lm]
    expected = losses(lms[0], x[::7]) - losses(lms[1], x[::7])
    torch.testing.assert_close(model.output(x)[::7], expected, atol=2e-5, rtol=0)
    assert expected.std() > 0.03 and (expected > 0).any() and (expected < 0).any()


def test_its_gradient_is_the_difference_of_gradients():
    model = difference(5)
    x = inputs(model)
    assert offers_of(model).without_gradient() == ""
    z, g = model.output_and_gradient(x)
    other = models.build(config_of({**WORSE, "length": 5}, None), "cpu")
    expected = [m.output_and_gradient(x) for m in (model.base, other)]
    torch.testing.assert_close(z, model.output(x), atol=2e-5, rtol=0)
    torch.testing.assert_close(g, expected[0][1] - expected[1][1])


def test_a_model_without_a_gradient_leaves_none():
    python = {"kind": "python", "factory": "small_models:make"}
    other = {**python, "options": {"kind": "constant", "sites": 3, "values": 10}}
    model = difference(3, other)
    torch.testing.assert_close(model.output(inputs(model)), model.base.output(inputs(model)) - 2.5)
    model = built(
        {**python, "options": {"kind": "sums", "sites": 3, "values": 4}},
        {"name": "difference", "other": {"kind": "python", "factory": "toy_models:coupled"}},
    )
    assert offers_of(model).output_and_gradient is not None  # both have one
    x = inputs(model)
    z, g = model.output_and_gradient(x)
    assert g.shape == (9, 3, 4) and torch.equal(z, model.output(x))


REFUSED = [
    ({**WORSE, "length": 4}, "different input spaces: \\[model\\] has 3 sites, output.other 4"),
    ({**WORSE, "prefix": [3]}, "model.prefix is None in \\[model\\]"),
    ({**WORSE, "path": "inputs/models/none"}, "output.other.path = inputs/models/none: no such"),
    ({"kind": "python", "factory": "small_models:make"}, "has 10 values per site, output.other 2"),
    ({"kind": "python", "factory": "nowhere:make"}, "output.other.factory = nowhere:make"),
]


@pytest.mark.parametrize("other, words", REFUSED)
def test_another_space_is_refused(other, words):
    with pytest.raises(UserError, match=words):
        difference(3, other)


def test_other_tokens_are_refused(tmp_path):
    one, other = (save_decoder("gpt2", tmp_path / name) for name in ("one", "other"))
    save_tokenizer(other, [*WORDS[:3], *WORDS[:2:-1]])
    keys = {"kind": "causal-lm", "length": 3}
    output = {"name": "difference", "other": {**keys, "path": str(other)}}
    with pytest.raises(UserError, match="stand for different tokens"):
        models.preflight(config_of({**keys, "path": str(one)}, output))


def test_the_fingerprint_names_both_models():
    def fingerprint(one, other, **keys):
        output = {"name": "difference", "other": other}
        config = config_of({**one, "length": 4}, output, **keys)
        about = models.preflight(config, hashed=False)
        assert about["fingerprint"] is None
        whole = models.preflight(config)["fingerprint"]
        assert models.pending_fingerprint(config, about).result() == whole
        return whole

    found = {fingerprint(*pair) for pair in ((TOY, WORSE), (WORSE, TOY), (TOY, TOY))}
    assert len(found) == 3
    without = models.preflight(config_of({**TOY, "length": 4}, None))["fingerprint"]
    assert without.startswith("sha256:") and all(f.startswith("sha256:") for f in found)


def test_rounding_and_noise_are_those_of_both():
    def config(one=TOY, other=WORSE):
        return config_of({**one, "length": 4}, {"name": "difference", "other": other})

    absolute, relative = table.rounding(config())
    alone = table.rounding(config_of({**TOY, "length": 4}, None))
    assert relative == 0.0 and absolute >= 2 * alone[0]
    rough = config(other={**WORSE, "dtype": "bfloat16"})
    assert rough.rounded_as == "bfloat16" and table.rounding(rough)[0] > 10 * absolute
    noisy = config(other={**WORSE, "noise": True})
    assert table.rounding(noisy) is None and noisy.noisy and "noise" in table.z_label(noisy)
    with pytest.raises(ValueError, match="tf32"):
        config_of(
            {**TOY, "length": 4},
            {"name": "difference", "other": {**WORSE, "dtype": "float16"}},
            run={"output": "a.h5", "seed": 1, "rounds": 1, "precision": "tf32"},
        )


def test_a_small_difference_of_large_outputs_may_be_rounded_as_these():
    config = config_of({**TOY, "length": 3}, {"name": "difference", "other": WORSE})
    assert models.same_outputs([0.01], [0.03], config)  # of 20: 1e-3, as of each model alone
    assert not models.same_outputs([0.01], [0.06], config)
    assert not models.same_outputs([0.01], [0.03], config_of({**TOY, "length": 3}, None))
