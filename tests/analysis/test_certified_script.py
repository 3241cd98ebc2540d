"""`reweight.py --certified`: files and lines, with and without a census, and what it refuses."""

import numpy as np
import pandas
import pytest
from normalized_chain import NormalizedChain
from run_files import CONFIG, put_run, write_run
from script_tools import call_script, is_plain, is_png

from omniinput_hpc.results.record import read_results
from omniinput_hpc.runfile import census_file

KIND = 'kind = "python"\nfactory = "normalized_chain:NormalizedChain"'


@pytest.fixture(scope="module")
def model():
    return NormalizedChain(0, sharpness=1.5, spread=0.5)


@pytest.fixture
def run(model, tmp_path):
    found = model.ancestral_run((0.0, 0.5, 1.0, 1.2), 1)
    lower, upper = found.edges[0], found.edges[-1]
    config = CONFIG.format(
        rounds=8, seed=1, model=KIND, walkers=16, moves=5, betas=found.beta_k.tolist(),
        lower=lower, upper=upper, width=(upper - lower) / (len(found.edges) - 1),
    )  # fmt: skip
    put_run(tmp_path / "a.h5", found, config, "chain", 8)
    return tmp_path / "a.h5"


def write_census(path, model, fingerprint, n_sites=None):
    """Write what a census of the chain would have found in its lowest outputs."""
    last = int(np.searchsorted(np.cumsum(model.count_l), 1000))
    z_i = np.repeat(model.z_l[: last + 1], model.count_l[: last + 1].astype(int))
    n, d = len(z_i), n_sites or model.n_sites
    numbers = dict.fromkeys(census_file.NUMBERS, 0.0)
    numbers |= {"n_sites": d, "n_values": model.n_values, "below": np.nan,
                "complete_below": model.z_l[last] + 1e-3, "least_unlisted": np.inf}  # fmt: skip
    arrays = {
        "found/x": np.zeros((n, d), np.uint8), "found/z": z_i.astype(np.float32),
        "counts/inputs": np.zeros(len(model.edges) + 1, np.int64), "bins/edges": model.edges,
        "open/x": np.zeros((0, d), np.uint8), "open/depth": np.zeros(0, np.int64),
        "open/loss": np.zeros(0),
    }  # fmt: skip
    texts = dict.fromkeys(census_file.TEXTS, "") | {"model_fingerprint": fingerprint}
    census_file.write(path, census_file.StoredCensus(texts, numbers, arrays))


@pytest.mark.slow
def test_bounds_are_written_and_hold(run, model, capsys):
    code, out, _ = call_script("reweight.py", [str(run), "--certified"], capsys)
    assert code == 0 and "certified: each pair of bounds" in out
    assert "the density is within these bounds at" in out
    table = pandas.read_csv(run.with_name("a.certified.csv"))
    assert list(table) == ["z", "log_inputs", "log_inputs_low", "log_inputs_high", "exact"]
    exact = model.log_up_to(table["z"].to_numpy())
    assert (table["log_inputs_low"] <= exact + 1e-9).all()
    assert (table["log_inputs_high"] >= exact - 1e-9).all()
    assert is_png(run.with_name("a.certified.png"))
    (entry,) = read_results(run.with_name("a.results.json"))["analyses"]
    assert [verdict["of"] for verdict in entry["verdicts"]] == ["a"]

    write_census(run.with_name("a.census.h5"), model, "chain")
    census = ["--census", str(run.with_name("a.census.h5"))]
    code, _, _ = call_script("reweight.py", [str(run), "--certified", *census], capsys)
    known = pandas.read_csv(run.with_name("a.certified.csv")).query("exact == 1")
    assert code == 0 and len(known)
    np.testing.assert_allclose(known["log_inputs_low"], model.log_up_to(known["z"].to_numpy()))
    np.testing.assert_array_equal(known["log_inputs_low"], known["log_inputs_high"])


def test_what_is_refused(run, model, tmp_path, capsys):
    write_run(tmp_path / "chains.h5", rounds=2)
    code, _, said = call_script("reweight.py", [str(tmp_path / "chains.h5"), "--certified"], capsys)
    assert is_plain(code, said, "ancestral")
    bins = ["--certified", "--bins", "0:4:1"]
    code, _, said = call_script("reweight.py", [str(run), *bins], capsys)
    assert is_plain(code, said, "leave out --bins")
    write_census(run.with_name("other.census.h5"), model, "another")
    census = ["--census", str(run.with_name("other.census.h5"))]
    code, _, said = call_script("reweight.py", [str(run), "--certified", *census], capsys)
    assert is_plain(code, said, "another model")
    code, _, said = call_script("reweight.py", [str(run), *census], capsys)
    assert is_plain(code, said, "--certified")
    write_census(run.with_name("longer.census.h5"), model, "chain", n_sites=model.n_sites + 1)
    census = ["--census", str(run.with_name("longer.census.h5"))]
    code, _, said = call_script("reweight.py", [str(run), "--certified", *census], capsys)
    assert is_plain(code, said, f"a census of inputs of {model.n_sites + 1} sites")
