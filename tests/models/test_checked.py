"""Is the model a function: noise is found, at the start and while running; rounding is not."""

import re
from itertools import product

import numpy as np
import pytest
import torch
from language_folders import save_decoder
from run_tools import LATTICE, ROOT, assert_same
from run_tools import run as run_program
from runs_in_progress import WORLD, begin, config_of, sampled
from toy_models import lattice

from omniinput_hpc import models
from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import checked
from omniinput_hpc.models.checked import CheckedModel, NonFiniteOutput, NotAFunction, seen_finite
from omniinput_hpc.sampling import build, loop, output_check

SHORT = ["run.rounds=2", "run.burn_in=0", "sampler.steps=6", "sampler.exchanges=10"]
ONE_MOVE = ["run.rounds=1", "run.burn_in=0", "sampler.steps=3", "sampler.exchanges=4",
            "samples.every=3", "sampler.walkers=8"]  # fmt: skip


def noisy(folder, size, *changes, kind="noise"):
    options = f"model.options={{size = {size}, kind = '{kind}'}}"
    return config_of(folder, *SHORT, "model.factory=markov_model:no_function", options, *changes)


@pytest.mark.parametrize("size", [0.5, 1e-3, 1e-4])
def test_noise_is_found_at_the_start(tmp_path, size):
    with pytest.raises(UserError, match=r"returned outputs that differ by .* not a fu"):
        build.build(WORLD, noisy(tmp_path, size), None).check_is_function()
    build.build(WORLD, noisy(tmp_path, 0.0), None).check_is_function()
    build.build(WORLD, noisy(tmp_path, size, "model.noise=true"), None).check_is_function()


@pytest.mark.parametrize(("kind", "size"), [("row", 1e-3), ("row", 1e-4), ("batch", 1e-3)])
def test_outputs_that_depend_on_the_batch_are_found_at_the_start(tmp_path, kind, size):
    """The wrong variant: evaluated twice in the same batch, it gives the same."""
    built = build.build(WORLD, noisy(tmp_path, size, kind=kind), None)
    x = np.zeros((8, 6), dtype=np.uint8)
    evaluate = built.rungs[0].walkers.evaluate
    np.testing.assert_array_equal(evaluate(x), evaluate(x))
    with pytest.raises(UserError, match="or the other inputs of a batch"):
        built.check_is_function()


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "size"), [
    ("metropolis", 0.5), ("metropolis", 1e-4), ("lm-conditional", 1e-4),
    ("gibbs-with-gradients", 1e-4),
    *(pytest.param(*case, marks=pytest.mark.release) for case in
      [("metropolis", 1e-3), ("lm-conditional", 0.5), ("lm-conditional", 1e-3),
       ("gibbs-with-gradients", 0.5), ("gibbs-with-gradients", 1e-3)]),
])  # fmt: skip
def test_noise_that_begins_later_ends_the_run(tmp_path, kernel, size):
    run = begin(noisy(tmp_path, size, f"kernel.name={kernel}"))
    with pytest.raises(NotAFunction, match=r"differ by (\S+), \S+ times what rounding") as caught:
        loop.sample(run)
    run.writer.close()
    apart = float(re.search(r"differ by (\S+),", str(caught.value))[1])
    assert size < apart < 8 * size
    quiet = begin(noisy(tmp_path / "quiet", 0.0, f"kernel.name={kernel}"))
    loop.sample(quiet)
    quiet.writer.close()
    assert quiet.rungs[0].walkers.model.n_compared > 0
    assert quiet.rungs[0].walkers.model.apart()[0] < 0.1


def test_noise_may_be_sampled_where_it_is_declared(tmp_path):
    config = noisy(tmp_path, 0.5, "model.noise=true")
    run = begin(config)
    loop.sample(run)
    run.writer.close()
    assert run.rungs[0].walkers.model.n_compared == 0
    assert models.closeness(config, 1.0) == np.inf  # resuming and --rescore cannot compare, either
    assert models.z_label(config).endswith(", with noise")


def test_a_user_states_other_rounding(tmp_path):
    assert models.rounding(noisy(tmp_path, 0.0)) == (2e-5, 3e-6)
    rough = noisy(tmp_path, 1e-3, "model.rounding=0.01")
    build.build(WORLD, rough, None).check_is_function()
    with pytest.raises(UserError):
        wrong = noisy(tmp_path, 0.1, "model.rounding=0.01")
        build.build(WORLD, wrong, None).check_is_function()


@pytest.mark.slow
def test_comparing_changes_no_byte(tmp_path, monkeypatch):
    for folder in ("compared", "not"):
        run = begin(noisy(tmp_path / folder, 0.0))
        loop.sample(run)
        run.writer.close()
        assert (run.rungs[0].walkers.model.n_compared > 0) == (folder == "compared")
        monkeypatch.setattr(CheckedModel, "compare", lambda *arguments: None)
    assert_same(tmp_path / "compared/run.h5", tmp_path / "not/run.h5")


def apart_of(config):
    """Return how far outputs of a short run were apart, in units of the rounding allowed."""
    about = models.preflight(config)
    built = build.build(WORLD, config, about.get("folder"))
    built.check_is_function()
    run = begin(config)
    loop.sample(run)
    run.writer.close()
    assert run.rungs[0].walkers.model.n_compared > 0
    return run.rungs[0].walkers.model.apart()[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toy", "english-25", "digits-mlp", "digits-cnn"])
def test_the_repositorys_models_are_functions(tmp_path, name, monkeypatch):
    monkeypatch.setattr(output_check, "MOVES_PER_LOOK", 1)
    words = [*ONE_MOVE, f"run.output={tmp_path}/run.h5"]
    assert apart_of(input_file.load(ROOT / f"inputs/{name}.toml", words)) < 0.5


def families_dtypes_kernels():
    """Return all cases: the quick ones have each kernel and each family in both dtypes."""
    quick = {
        ("gpt2", "float32", "metropolis"), ("gpt2", "float32", "gibbs-with-gradients"),
        ("gpt2", "bfloat16", "lm-conditional"), ("llama", "bfloat16", "metropolis"),
        ("llama", "bfloat16", "gibbs-with-gradients"), ("llama", "float32", "lm-conditional"),
    }  # fmt: skip
    kernels = ("metropolis", "lm-conditional", "gibbs-with-gradients")
    every = product(("gpt2", "llama"), ("float32", "bfloat16", "float16"), kernels)
    return [
        pytest.param(*case, marks=[] if case in quick else [pytest.mark.release]) for case in every
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "dtype", "kernel"), families_dtypes_kernels())
def test_kept_keys_and_values_agree_within_rounding(tmp_path, family, dtype, kernel):
    save_decoder(family, tmp_path)
    words = [*ONE_MOVE, f"run.output={tmp_path}/run.h5", f"model.path={tmp_path}",
             "model.length=5", f"model.dtype={dtype}", f"kernel.name={kernel}",
             "ladder.betas=[0.0, 2.0, 4.0]", "ladder.tune=false"]  # fmt: skip
    text = (ROOT / "inputs/toy.toml").read_text()
    for key in ("lowest", "highest", "rungs", "spacing", "first"):
        text = re.sub(rf"(?m)^{key} = .*$", "", text)
    assert apart_of(input_file.parse(text, "toy.toml", words)) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_exit_codes(tmp_path, ranks):
    toml = tmp_path / "a.toml"
    toml.write_text(LATTICE.format(output=tmp_path / "run.h5"))
    words = [*SHORT, "model.factory=markov_model:no_function", "model.options.size=1e-3"]
    arguments = [part for word in words for part in ("--set", word)]
    start = run_program(toml, *arguments, ranks=ranks)
    assert start.returncode == 2 and start.stderr.count("omniinput_hpc: ") == 1, start.stderr
    assert "set model.noise = true" in start.stderr and not (tmp_path / "run.h5").exists()
    later = run_program(toml, *arguments, "--set", "model.options.quiet=60", ranks=ranks)
    assert later.returncode in (1, 9), later.stderr
    assert "NotAFunction" in later.stderr and "differ by" in later.stderr


def test_a_kernel_without_the_comparison_lets_noise_pass(tmp_path, monkeypatch):
    """What the tests above show is shown by the comparison alone."""
    monkeypatch.setattr(CheckedModel, "compare", lambda *arguments: None)
    run = begin(noisy(tmp_path, 0.5))
    loop.sample(run)
    run.writer.close()


def ising_words(make, side=10):
    """Return the settings of an Ising model; z of 10 x 10 sites is rounded, of 8 x 8 not."""
    return [f"model.factory=ising:{make}", f"model.options={{side = {side}}}", "bins.lower=-2.125",
            "bins.upper=2.125", "ladder.betas=[0.0, 10.0, 25.0, 60.0]"]  # fmt: skip


def ising(folder, make, *changes, side=10):
    return config_of(folder, *ising_words(make, side), *changes)


def test_changes_give_the_bytes_of_full_evaluations(tmp_path):
    files = []
    for make in ("make", "make_whole"):
        run = begin(ising(tmp_path / make, make, side=8))
        loop.sample(run)
        run.writer.close()
        files.append(tmp_path / make / "run.h5")
    assert_same(*files)


def test_a_run_by_changes_resumes_with_the_same_bytes(tmp_path):
    """z is rounded here: what a resumed run begins with must be what the other went on with."""
    words = ising_words("make")
    whole = sampled(tmp_path / "whole", *words)
    assert sampled(tmp_path / "stopped", *words, until=2)
    assert_same(whole, sampled(tmp_path / "stopped", *words))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "sign",
            r"at site \d+, change returned \S+, but outputs differ by .* fix it, or remove it",
        ),
        ("corner", r"at site 0, change returned"),
        ("shape", r"must return float32 or float64 \[8\] for 8 inputs, found float32 \[8, 1\]"),
        ("type", r"found int64 \[8\]"),
        ("writes", r"must not write into x"),
    ],
)
def test_a_wrong_change_is_found_at_the_start(tmp_path, kind, message):
    options = f"model.options={{kind = '{kind}'}}"
    with pytest.raises(UserError, match=message):
        build.build(WORLD, ising(tmp_path, "make_wrong", options), None).check_is_function()
    build.build(WORLD, ising(tmp_path, "make"), None).check_is_function()


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("ordered", NotAFunction, r"has sums of changes and outputs that differ by .* fix it, or"),
        ("nan", NonFiniteOutput, r"returned a z that is not finite for the input in slot"),
    ],
)
def test_a_change_that_is_wrong_for_few_inputs_ends_the_run(tmp_path, kind, error, message):
    config = ising(
        tmp_path, "make_wrong", f"model.options={{kind = '{kind}'}}", "sampler.steps=200",
        "ladder.betas=[0.0, 10.0, 50.0, 200.0]",
    )  # fmt: skip
    build.build(WORLD, config, None).check_is_function()  # random inputs do not show it
    run = begin(config)
    with pytest.raises(error, match=message):
        loop.sample(run)
    run.writer.close()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("sign", r"at site \d+, compiled_change returned \S+, but outputs differ by"),
        (
            "method",
            r"must be a function compiled by numba.njit and set in __init__, .* found method",
        ),
        ("types", r"compiled_change\(x, site, value\) does not compile for x int64 \[D\]"),
    ],
)
def test_a_wrong_compiled_change_is_found_at_the_start(tmp_path, kind, message):
    options = f"model.options={{kind = '{kind}'}}"
    with pytest.raises(UserError, match=message):
        build.build(WORLD, ising(tmp_path, "make_compiled", options), None).check_is_function()


def test_a_right_compiled_change_is_not_refused(tmp_path):
    build.build(WORLD, ising(tmp_path, "make_compiled"), None).check_is_function()


def test_a_compiled_change_that_is_not_finite_ends_the_run(tmp_path):
    config = ising(
        tmp_path, "make_compiled", "model.options={kind = 'nan'}", "sampler.steps=4000",
        "ladder.betas=[0.0, 10.0, 50.0, 200.0]",
    )  # fmt: skip
    run = begin(config)
    with pytest.raises(NonFiniteOutput, match="returned a z that is not finite for the input"):
        loop.sample(run)
    run.writer.close()


def test_a_run_by_compiled_changes_resumes_with_the_same_bytes(tmp_path):
    words = ising_words("make_compiled")
    whole = sampled(tmp_path / "whole", *words)
    assert sampled(tmp_path / "stopped", *words, until=2)
    assert_same(whole, sampled(tmp_path / "stopped", *words))


def test_a_model_that_is_declared_to_be_noisy_may_have_changes(tmp_path):
    options = ["model.options={kind = 'ordered'}", "model.noise=true"]
    run = begin(ising(tmp_path, "make_wrong", *options))
    loop.sample(run)
    run.writer.close()
    assert run.rungs[0].walkers.model.n_compared == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_seen_in_every_place(bad):
    for places in ([0], [7], [3, 4]):
        z = torch.linspace(-1, 1, 8)
        assert seen_finite(z)
        z[places] = torch.tensor([bad, -bad])[: len(places)]
        assert not seen_finite(z)
    assert not seen_finite(torch.full((8,), 3e38))  # their sum is too large: not sure, so no
    checked = CheckedModel(lattice("cpu"), "model")
    checked.watch(torch.zeros((8, 6), dtype=torch.int64), torch.full((8,), 3e38))
    checked.raise_if_nonfinite()  # looked at one by one, they are finite
    checked.watch(torch.zeros((8, 6), dtype=torch.int64), z)
    with pytest.raises(NonFiniteOutput, match="slot 3"):
        checked.raise_if_nonfinite()


@pytest.mark.parametrize("what", ["z", "gradient"])
def test_what_is_not_finite_is_not_forgotten_with_other_batches(what, monkeypatch):
    monkeypatch.setattr(checked, "seen_finite", lambda z: False)  # as on a GPU
    model = CheckedModel(lattice("cpu"), "model")
    x = torch.arange(48).view(8, 6) % 4
    model.watch(x[:3], torch.zeros(3))
    z = torch.zeros(8)
    z[[5, 7]] = torch.nan
    model.watch(x, z, what)
    model.watch(x[:2], torch.tensor([torch.inf, 0.0]), what)  # not the first
    model.watch(x[:2], torch.zeros(2))
    said = rf"{what} that is not finite for the input in slot 5: .*values \[2, 3, 0, 1, 2, 3\]"
    with pytest.raises(NonFiniteOutput, match=said):
        model.raise_if_nonfinite()


def test_what_one_machine_may_is_allowed_between_two(tmp_path):
    z = np.array([0.0, 1.0, -40.0, 1e4])
    for more in ([], ["model.rounding=0.05"], ["model.rounding=1e-9"], ["run.precision=tf32"]):
        config = noisy(tmp_path, 0.0, *more)
        number, share = models.rounding(config)
        assert (models.closeness(config, z) >= number + share * np.abs(z)).all()
    rough = noisy(tmp_path, 0.0, "model.rounding=0.05")
    assert models.same_outputs([1.0], [1.01], rough)
    assert not models.same_outputs([1.0], [1.06], rough)
