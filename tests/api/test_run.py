"""`omniinput_hpc.open`: the numbers of the scripts, in objects; light to import."""

import subprocess
import sys
from dataclasses import replace

import h5py
import numpy as np
import pytest
from run_files import write_run
from run_tools import environment
from score_files import write_score_files

import omniinput_hpc as oi
from omniinput_hpc.cli.omniinput import main
from omniinput_hpc.errors import UserError
from omniinput_hpc.results.result import Interval
from omniinput_hpc.results.tables import read_table


def first_is_zero(x):
    return (x[:, 0] == 0) * 1.0


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    run = write_run(folder / "toy.h5", walkers=16)
    write_score_files(folder / "toy.h5", run, ["ann", "ben"])
    return folder / "toy.h5"


@pytest.fixture
def run(path):
    with oi.open(path) as run:
        yield run


def test_importing_takes_no_time_and_no_library():
    """Under 0.3 s of CPU is asked; a loaded machine gets three tries."""
    code = (
        "import sys, time; begin = time.process_time(); import omniinput_hpc; "
        "print(time.process_time() - begin); "
        "print([m for m in ('numpy', 'torch', 'mpi4py', 'h5py', 'pandas') if m in sys.modules])"
    )
    seconds = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              env=environment(), timeout=400, check=True)  # fmt: skip
        took, loaded = done.stdout.splitlines()
        assert loaded == "[]"
        seconds.append(float(took))
    assert min(seconds) < 0.3


def test_opening_needs_neither_torch_nor_pandas_nor_matplotlib(path):
    code = (
        "import sys, omniinput_hpc as oi; run = oi.open(sys.argv[1]); print(run.density()); "
        "sys.exit(any(m in sys.modules for m in ('torch', 'pandas', 'xarray', 'matplotlib')))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True,
                          env=environment(), timeout=400)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Density of ")


def test_the_density_is_the_scripts(run, path, capsys):
    assert main(["reweight", str(path)]) == 0
    _, table = read_table(path.with_name("toy.density.csv"), ["log_g"])
    density = run.density()
    frame = density.to_dataframe()
    for name, values in table.items():
        np.testing.assert_allclose(frame[name], values, rtol=1e-11, err_msg=name)
    assert density.converged == ("converged: yes" in capsys.readouterr().out)
    low, high = density.interval()
    assert (frame["log_g_low"] == low).all() and (low < density.log_g).all()
    half = density.interval(0.5)[1] - density.log_g
    assert (half < high - density.log_g).all()
    assert run.density() is density


def test_the_curve_is_the_scripts_whether_by_a_function_or_by_scores(run, path, capsys):
    by_rule = run.precision_recall(first_is_zero)
    assert isinstance(by_rule.aupr, Interval) and by_rule.aupr.low <= float(by_rule.aupr)
    low, high = by_rule.recall_range
    assert low < high and len(by_rule) == len(by_rule.threshold) == len(by_rule.precision)
    scores = sorted(path.parent.glob("toy.scores.*.jsonl"))
    by_people = run.precision_recall(scores=scores)
    words = [str(path), "--scores", *map(str, scores)]
    assert main(["precision-recall", *words]) == 0
    assert f"AUPR: {by_people.aupr.value:.2f}" in capsys.readouterr().out
    _, table = read_table(path.with_name("toy.pr.csv"), ["precision"])
    np.testing.assert_allclose(by_people.to_dataframe()["precision"], table["precision"])


def test_what_a_curve_is_asked_for_wrongly(run):
    with pytest.raises(UserError, match="takes a rule or score files"):
        run.precision_recall()
    with pytest.raises(UserError, match="fails failed: ZeroDivisionError"):

        def fails(x):
            return 1 / 0

        run.precision_recall(fails)


def test_samples_of_a_range_are_all_that_were_recorded_there(run):
    found = run.samples(z=(1.0, 2.0))
    n = sum(int(((z >= 1.0) & (z < 2.0)).sum()) for _, z in run.reader.samples())
    assert len(found) == n > 0 and found.x.shape == (n, run.reader.n_sites)
    assert ((found.z >= 1.0) & (found.z < 2.0)).all()
    frame = run.samples(z=(1.0, 2.0), rungs=[1]).to_dataframe()
    assert set(frame["rung"]) == {1} and set(frame["beta"]) == {run.betas[1]}
    for i in (0, len(frame) - 1):
        recorded = [x for x, _ in run.reader.samples()][frame["round"][i]][1]
        assert (recorded == frame["x"][i]).all(axis=1).any()


def test_an_output_that_float32_rounds_lies_in_its_bin(tmp_path):
    """float32(2.3) is below 2.3."""
    write_run(tmp_path / "one.h5", walkers=16)
    with h5py.File(tmp_path / "one.h5", "r+", locking=False) as file:
        file["samples/z"][0, 0, 0] = np.float32(2.3)
    with oi.open(tmp_path / "one.h5") as run:
        below, above = run.samples(z=(2.2, 2.3)), run.samples(z=(2.3, 2.4))
    assert np.float32(2.3) in below.z and np.float32(2.3) not in above.z


def test_weighted_samples_stand_for_all_inputs(run):
    """With the weights, shares of bins are the density's, within its errors."""
    found, density = run.samples(), run.density()
    weight = np.exp(found.log_weight - found.log_weight.max())
    edges = density.estimate.edges
    share = np.histogram(found.z, edges, weights=weight)[0]
    share = np.log(share[density.estimate.count_b > 0] / share.sum())
    expected = density.log_g - np.logaddexp.reduce(density.log_g)
    assert np.abs(share - expected).max() < 0.2
    plain = np.histogram(found.z, edges)[0][density.estimate.count_b > 0]
    assert np.abs(np.log(plain / plain.sum()) - expected).max() > 0.5  # unweighted: far off


def test_samples_of_one_rung_are_weighted_by_it_alone(run):
    found = run.samples(rungs=[1])
    apart = found.log_weight - run.betas[1] * found.z
    assert np.ptp(apart) < 0.05 * np.ptp(found.z)  # the weights use the bins' mean outputs


def test_too_many_samples_are_refused(run, monkeypatch):
    monkeypatch.setattr("omniinput_hpc.api.run.MAX_SAMPLES", 10)
    with pytest.raises(UserError, match="choose a narrower z or fewer rungs"):
        run.samples()


def test_texts_and_tables_of_notebooks(run):
    curve, inputs = run.precision_recall(first_is_zero), run.samples(z=(1.0, 2.0))
    for shown in (run, run.density(), curve, run.diagnose(), inputs):
        html = shown._repr_html_()
        assert html.startswith("<div>") and html.endswith("</div>") and html.count("<table>") == 1
        assert len(repr(shown).splitlines()) < 60
    assert f"{len(inputs):,} recorded inputs" in repr(inputs)


def test_texts_are_escaped(run):
    named = replace(run.density(), remark="<script>alert(1)</script>")
    assert "<script>" not in named._repr_html_() and "&lt;script&gt;" in named._repr_html_()


def test_every_result_is_drawn(run):
    curve = run.precision_recall(first_is_zero)
    for figure in (run.plot(), curve.plot(), curve.plot_scores(), run.diagnose().plot()):
        assert figure.axes


def test_a_missing_library_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pandas is not installed: python -m pip install pandas"):
        run.density().to_dataframe()
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(UserError, match="xarray is not installed: python -m pip install arviz"):
        run.to_arviz()


def test_a_missing_file_is_a_users_mistake(tmp_path):
    with pytest.raises(UserError, match=r"no\.h5"):
        oi.open(tmp_path / "no.h5")
