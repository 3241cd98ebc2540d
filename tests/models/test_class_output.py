"""z of a classifier against the probabilities of its classes."""

import pytest
import torch

from omniinput_hpc.models import class_output


@pytest.fixture
def logits():
    return 3 * torch.randn((40, 4), generator=torch.Generator().manual_seed(1))


def expected(logits, how):
    """Return each class's output, from probabilities in double precision, [W, C]."""
    p = logits.double().softmax(1)
    return {"logit": logits.double(), "log-softmax": p.log(), "log-odds": (p / (1 - p)).log()}[how]


@pytest.mark.parametrize("how", ["logit", "log-softmax", "log-odds"])
def test_outputs(logits, how):
    all_z = expected(logits, how)
    for which in range(4):
        z = class_output.of(logits, how, which)
        torch.testing.assert_close(z.double(), all_z[:, which], atol=1e-5, rtol=1e-5)
    z = class_output.of(logits, how, "any")
    torch.testing.assert_close(z.double(), all_z.amax(1), atol=1e-5, rtol=1e-5)
    assert (z - class_output.of(logits, how, 0)).abs().max() > 1


def test_difference_of_two(logits):
    two = logits[:, :2]
    z = class_output.of(two, "difference", 1)
    torch.testing.assert_close(z, two[:, 1] - two[:, 0])
    torch.testing.assert_close(z, class_output.of(two, "log-odds", 1))


def test_log_odds_do_not_saturate():
    """ln of a probability that rounds to 1 is 0; the odds still differ."""
    sure = torch.tensor([[50.0, 0.0, 0.0], [60.0, 0.0, 0.0]])
    assert class_output.of(sure, "log-softmax", 0).tolist() == [0.0, 0.0]
    assert class_output.of(sure, "log-odds", "any").diff().item() == pytest.approx(10.0)


@pytest.mark.parametrize("which", [2, "any"])
@pytest.mark.parametrize("how", ["log-softmax", "log-odds"])
def test_gradients(logits, how, which):
    inputs = logits[:5].double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: class_output.of(x, how, which), inputs)
