"""The canonical share of runs, and runs of canonical inputs, against all inputs of a model."""

import itertools
import json
import shutil

import h5py
import numpy as np
import pytest
import torch
from trained_tokenizers import random_corpus, save_with_model, trained, vocabulary

from omniinput_hpc.cli import enumerate as enumerate_
from omniinput_hpc.cli import run as launch
from omniinput_hpc.cli.verbs import report, representatives, reweight
from omniinput_hpc.config import input_file
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.models import table
from omniinput_hpc.models.language import canonical
from omniinput_hpc.results import canonical as results
from omniinput_hpc.results.density import DensityResult
from omniinput_hpc.results.representatives import how_to_show
from omniinput_hpc.runfile.reader import open_run

D, SIZE = 4, 12
INPUT = """
[run]
output = "{folder}/run.h5"
seed = 1
rounds = 12
burn_in = 4
[model]
kind = "causal-lm"
path = "{folder}/model"
length = 4
{space}
[sampler]
method = "parallel-tempering"
walkers = 16
steps = 2
exchanges = 20
[ladder]
betas = [0.0, 1.0, 3.0]
[bins]
lower = 0.0
upper = 12.0
width = 0.25
[samples]
every = 2
"""
SPACE = "[space]\ncanonical = true"


def corpus():
    return random_corpus(1, "ab ")


def folder(path, space="", regex=False):
    """Write a model and an input file; return the input file."""
    save_with_model(path / "model", trained(SIZE, regex=regex, corpus=corpus()))
    (path / "input.toml").write_text(INPUT.format(folder=path, space=space))
    return str(path / "input.toml")


def every_output(path):
    """Return all inputs, their z, and whether they are canonical."""
    tokenizer = trained(SIZE, corpus=corpus())
    x = np.array(list(itertools.product(range(tokenizer.get_vocab_size()), repeat=D)))
    config = input_file.parse(INPUT.format(folder=path, space=""), "")
    model = table.build(config, "cpu")
    z = np.concatenate([model.output(part).numpy() for part in torch.from_numpy(x).split(1000)])
    return x, z.astype(np.float64), canonical.is_canonical(vocabulary(tokenizer), x)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder of a run of all inputs, and all outputs."""
    path = tmp_path_factory.mktemp("whole")
    assert launch.main([folder(path)]) == 0
    return path, *every_output(path)


def shares_of(path):
    values = json.loads((path / "run.results.json").read_text())["analyses"][-1]["values"]
    return {name: value for name, value in values.items() if "canonical share" in name}


def test_the_share_of_each_bin_is_in_its_interval(whole, capsys, monkeypatch):
    path, _, z, truth = whole
    reweight.main([str(path / "run.h5")])
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("canonical (the tokenizer makes")]
    found = shares_of(path)
    every = found.pop("run: canonical share")
    assert every["low"] < truth.mean() < every["high"] and every["level"] == 0.95
    assert f"{100 * every['value']:.3g} % (" in line and " of all inputs; their number is " in line
    report.main([str(path / "run.h5")])
    share = line.split(", ")[-1].split(" of all inputs; ")[0]
    assert f"{share} of all inputs are canonical" in (path / "run.report.html").read_text()
    number = float(line.split("number is ")[1].split(" ")[0].replace(",", ""))
    assert number == pytest.approx(truth.sum(), rel=0.1)
    assert 5 < len(found) <= results.MAX_BINS
    sigmas, inside = [], []
    for name, value in found.items():
        low, high = (float(word) for word in name.split(" z = ")[1].split(" to "))
        exact = truth[(z >= low) & (z < high)].mean()
        inside.append(value["low"] <= exact <= value["high"])
        sigmas += [(value["value"] - exact) / value["error"]] if value["error"] else []
    assert np.mean(inside) > 0.8 and np.abs(sigmas).max() < 5

    right = canonical.is_canonical  # of whole inputs, not only of their first tokens
    monkeypatch.setattr(canonical, "is_canonical", lambda words, ids: right(words, ids[:, :2]))
    reweight.main([str(path / "run.h5")])
    wrong = shares_of(path)["run: canonical share"]
    assert not wrong["low"] < truth.mean() < wrong["high"]


def test_few_samples_are_tried_of_a_long_run(whole, monkeypatch):
    path, _, _, truth = whole
    tried, right = [], canonical.is_canonical
    monkeypatch.setattr(
        canonical, "is_canonical", lambda words, ids: tried.append(len(ids)) or right(words, ids)
    )
    monkeypatch.setattr(results, "MAX_SAMPLES", 2000)
    with open_run(path / "run.h5") as run:
        density = density_of_run(run.data)
        found = results.canonical_share([run.data], density, "low", how_to_show(run.config, False))
    assert 1000 < sum(tried) <= 2400
    low, high = found.curve.bands.low.precision_t[-1], found.curve.bands.high.precision_t[-1]
    assert low < truth.mean() < high


def test_representatives_print_it_and_without_a_tokenizer_nothing_is_said(whole, tmp_path, capsys):
    path = whole[0]
    representatives.main([str(path / "run.h5"), "--per-bin", "1"])
    assert "canonical (the tokenizer makes" in capsys.readouterr().out
    with open_run(path / "run.h5") as run:
        how = how_to_show(run.config, False)
        (path / "model" / "tokenizer.json").rename(tmp_path / "tokenizer.json")
        none = how_to_show(run.config, False)
        shutil.move(tmp_path / "tokenizer.json", path / "model" / "tokenizer.json")
        density = density_of_run(run.data)
        assert how.canonical is not None and none.canonical is None
        assert results.canonical_share([run.data], density, "low", none) is None
        assert (
            DensityResult([run], [density]).lines()
            == DensityResult([run], [density], share=None).lines()
        )


def z_scores(path, exact_z):
    """Return the z-scores of the bins of a run, given all outputs of its space."""
    with open_run(path / "run.h5") as run:
        density = density_of_run(run.data)
        x = np.concatenate([x.reshape(-1, D) for x, _ in run.samples()])
    exact_b = np.histogram(exact_z, density.edges)[0]
    seen = (density.count_b > 0) & (density.log_g_error_b > 0) & ~np.isfinite(density.log_g_upper_b)
    with np.errstate(divide="ignore"):
        z = (density.log_g_b - np.log(exact_b))[seen] / density.log_g_error_b[seen]
    return z, x, density


def test_a_run_of_canonical_inputs_has_their_density(tmp_path, capfd):
    file = folder(tmp_path, SPACE)
    assert launch.main([file]) == 0
    _, all_z, truth = every_output(tmp_path)
    scores, x, density = z_scores(tmp_path, all_z[truth])
    assert canonical.is_canonical(vocabulary(trained(SIZE, corpus=corpus())), x).all()
    assert density.absolute and density.log_measure == pytest.approx(np.log(truth.sum()))
    assert len(scores) > 8 and np.abs(scores).max() < 4.5
    wrong, _, _ = z_scores(tmp_path, all_z)  # as if all sequences were inputs
    assert np.abs(wrong).max() > 10
    with h5py.File(tmp_path / "run.h5") as stored:
        assert int(stored.attrs["n_inputs"]) == truth.sum()
        assert "canonical_share" not in stored.attrs  # all are
    assert f"{truth.sum():,} of these inputs, by space.canonical" in capfd.readouterr().err
    assert enumerate_.main([file, "--output", str(tmp_path / "e.csv")]) == 0
    all_of_it = np.loadtxt(tmp_path / "e.csv", delimiter=",", skiprows=1, ndmin=2)
    assert np.exp(all_of_it[:, 2]).sum() == pytest.approx(truth.sum())
    reweight.main([str(tmp_path / "run.h5")])
    assert shares_of(tmp_path)["run: canonical share"]["value"] == 1.0


def test_where_pairs_do_not_decide_the_share_is_printed_and_stored(tmp_path, capfd):
    file = folder(tmp_path, SPACE, regex=True)
    assert launch.main([file, "--check"]) == 0
    said = capfd.readouterr().err
    assert " % of them are canonical (" in said.replace("%", " %") and "by space.canonical" in said
    assert launch.main([file]) == 0
    with h5py.File(tmp_path / "run.h5") as stored:
        share = [stored.attrs[f"canonical_share{end}"] for end in ("_low", "", "_high")]
    assert share == sorted(share) and 0 < share[0] < share[2] <= 1


@pytest.mark.parametrize(("space", "model", "said"), [
    (SPACE, 'kind = "python"\nfactory = "law_models:letters"', "is for models with a tokenizer"),
    (SPACE, None, "space.canonical needs a tokenizer in"),
    ("[space]\ncanonical = 1", "", "space.canonical"),
    (f"{SPACE}\n[law]\nkind = \"model\"", "", "space.canonical is for inputs that all weigh the"),
    (f"{SPACE}\nend = 0", "", "space.end does not go with space.canonical"),
    (f"{SPACE}\n[kernel]\nname = \"metropolis\"", "", "may not be connected by changes"),
])  # fmt: skip
def test_bad_input(space, model, said, tmp_path, capfd):
    file = folder(tmp_path, space)
    if model is None:
        (tmp_path / "model" / "tokenizer.json").unlink()
    elif model:
        text = (tmp_path / "input.toml").read_text()
        begin, end = text.index("[model]"), text.index("[space]")
        (tmp_path / "input.toml").write_text(f"{text[:begin]}[model]\n{model}\n{text[end:]}")
    assert launch.main([file]) == 2
    error = capfd.readouterr().err
    assert said in error and "Traceback" not in error and not (tmp_path / "run.h5").exists()


def test_too_many_values_are_refused(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("omniinput_hpc.models.constraint.MAX_PAIRS", 100)
    assert launch.main([folder(tmp_path, SPACE)]) == 2
    assert "omniinput reweight prints which share" in capfd.readouterr().err


def test_false_is_as_if_left_out():
    given = input_file.parse(INPUT.format(folder=".", space="[space]\ncanonical = false"), "")
    assert given.space.model_dump(exclude_none=True) == {} and not given.constrained
    assert given.kernel == input_file.parse(INPUT.format(folder=".", space=""), "").kernel


def test_with_a_pattern_and_lists_all_hold(tmp_path):
    from omniinput_hpc.models import constraint

    lists = [list(range(SIZE)), list(range(0, SIZE, 2)), list(range(SIZE)), list(range(SIZE))]
    space = f'{SPACE}\npattern = "[ab]*( [ab]*)?"\nallowed = {lists}'
    folder(tmp_path, space)
    config = input_file.parse(INPUT.format(folder=tmp_path, space=space), "")
    found = constraint.of(config, table.build(config, "cpu"))
    x, _, truth = every_output(tmp_path)
    texts = trained(SIZE, corpus=corpus()).decode_batch(x.tolist())
    truth &= np.array([text.count(" ") < 2 for text in texts]) & (x[:, 1] % 2 == 0)
    np.testing.assert_array_equal(found.contains(x), truth)
    assert found.n_inputs == truth.sum() > 0
