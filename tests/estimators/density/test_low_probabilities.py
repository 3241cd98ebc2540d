"""tests/benchmarks/low_probabilities.py on a decoder whose inputs are all known."""

import numpy as np
import pytest
import rare_tokens
import torch
from run_tools import loaded

N_VALUES, N_SITES, N_RUNS = 7, 4, 12


@pytest.fixture(scope="module")
def decoder():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(4)
    config = GPT2Config(
        n_positions=8, n_embd=16, n_layer=1, n_head=2, vocab_size=N_VALUES,
        bos_token_id=0, eos_token_id=0, initializer_range=0.4,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def problem(decoder):
    p = np.random.default_rng(2).dirichlet(np.full(N_VALUES, 0.5), size=N_SITES)
    p[1, 3] = 0.0
    with np.errstate(divide="ignore"):
        log_p = np.log(p / p.sum(axis=1, keepdims=True)).astype(np.float32)
    return rare_tokens.Problem(decoder, torch.from_numpy(log_p))


@pytest.fixture(scope="module")
def p_v(problem):
    p_v, inputs_v = rare_tokens.exact(problem)
    assert p_v.sum() == pytest.approx(1.0, abs=1e-6)
    assert inputs_v.sum() == N_VALUES ** (N_SITES - 1) * (N_VALUES - 1)
    return p_v


@pytest.fixture(scope="module")
def rare(p_v):
    """Return the token with the P that is nearest to 0.001, and P."""
    target = int(np.abs(np.log(p_v.clip(1e-30)) - np.log(0.001)).argmin())
    return target, float(p_v[target])


def sigmas_off(estimates, p):
    """Return by how many standard errors the mean of exp(estimates) is off."""
    found = np.exp([estimate.log_p for estimate in estimates])
    return (found.mean() - p) / (found.std(ddof=1) / np.sqrt(len(found)))


def test_plain_sampling(problem, rare):
    target, p = rare
    found_v, error_v, n = rare_tokens.plain(problem, 200, 1)
    assert found_v[target] == pytest.approx(p, abs=3 * np.sqrt(p / n))
    assert error_v[target] == pytest.approx(np.sqrt(found_v[target] / n), rel=0.1)


@pytest.mark.slow
def test_itgis_is_unbiased_and_needs_its_weights(problem, p_v):
    class Unweighted(rare_tokens.Problem):
        def log_law(self, x, log_p=None):
            return super().log_law(x)

    target, p = 2, p_v[2]  # one that the gradient leads to
    right, wrong = (
        [rare_tokens.itgis(of, target, 0.7, 20, seed) for seed in range(N_RUNS)]
        for of in (problem, Unweighted(problem.lm, problem.log_p))
    )
    assert abs(sigmas_off(right, p)) < 3
    assert abs(sigmas_off(wrong, p)) > 4


@pytest.mark.slow
def test_mhis_is_right_and_needs_the_reverse_proposal(problem, rare):
    target, p = rare
    right, wrong = (
        [rare_tokens.mhis(problem, target, 0.7, 200, seed, reverse) for seed in range(N_RUNS)]
        for reverse in (True, False)
    )
    assert abs(sigmas_off(right, p)) < 3
    assert abs(sigmas_off(wrong, p)) > 4
    z = [(e.log_p - np.log(p)) / e.error for e in right]
    assert 0.5 < np.sqrt(np.mean(np.square(z))) < 1.7


# of the two below the program's part is also that of sampling/test_law.py
@pytest.mark.slow
@pytest.mark.release
def test_the_program_beside_them(problem, rare, decoder, tmp_path):
    target, p = rare
    decoder.save_pretrained(tmp_path / "model")
    np.save(tmp_path / "rows.npy", problem.log_p.numpy())
    bench = loaded("tests/benchmarks/low_probabilities.py")
    program = bench.Program(tmp_path, tmp_path / "rows.npy", tmp_path / "model")
    found = program.estimate(target, 120, 1)
    assert abs(found.log_p - np.log(p)) < 3 * found.error < 0.5


@pytest.mark.slow
@pytest.mark.release
def test_all_find_the_mean_probability(problem, decoder, tmp_path):
    mean = rare_tokens.Problem(decoder, problem.log_p, mean=True)
    p_v, _ = rare_tokens.exact(mean)
    assert p_v.sum() == pytest.approx(1.0, abs=1e-6)
    target = int(p_v.argmin())
    log_p = np.log(p_v[target])
    found_v, error_v, _ = rare_tokens.plain(mean, 20, 1)
    assert abs(found_v[target] - p_v[target]) < 4 * error_v[target]
    for method in (rare_tokens.itgis, rare_tokens.mhis):
        found = method(mean, target, 1.0, 100, 2)
        assert abs(found.log_p - log_p) < 4 * found.error < 0.5
    decoder.save_pretrained(tmp_path / "model")
    np.save(tmp_path / "rows.npy", problem.log_p.numpy())
    bench = loaded("tests/benchmarks/low_probabilities.py")
    program = bench.Program(tmp_path, tmp_path / "rows.npy", tmp_path / "model", mean=True)
    found = program.estimate(target, 60, 1)
    assert abs(found.log_p - log_p) < 4 * found.error < 0.5
