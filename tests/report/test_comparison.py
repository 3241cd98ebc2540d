"""The first part of a report on several runs: the verdict first, one picture, a row each."""

import re
from types import SimpleNamespace

import h5py
import pytest
from run_files import write_run

from omniinput_hpc.report import comparison as of_report
from omniinput_hpc.results import comparison

pytestmark = pytest.mark.usefixtures("undrawn")


def section(html):
    return html[html.index('<section id="compared">') : html.index('<section id="run0"')]


def lines_of(part):
    return re.findall(r"<p>([^<]*)", part)


def test_two_runs_of_one_model_are_judged_before_each_is_shown(tmp_path, inside):
    for seed, name in enumerate(("one", "two"), 1):
        write_run(tmp_path / f"{name}.h5", walkers=16, seed=seed)
    assert inside("report.py", "one.h5", "two.h5", "--output", "both.html")[0] == 0
    code, said, _ = inside("compare.py", "one.h5", "two.h5")
    assert code == 0
    part = section((tmp_path / "both.html").read_text(encoding="utf-8"))
    lines = lines_of(part)
    assert "one and two agree within their errors." in lines[0]
    assert all(line.replace("&#39;", "'") in said for line in lines)
    assert part.count("<svg") == 2 and 'href="#run1"' in part


def test_every_verdict_of_a_comparison_comes_first(monkeypatch):
    """Whatever is left out of a curve, and with more than two models, too."""
    monkeypatch.setattr(comparison, "outside_line", lambda *_: "outside")
    monkeypatch.setattr(comparison, "recall_unit", lambda *_: "")
    monkeypatch.setattr(comparison, "model_lines", lambda both, a, b, *_: ["range", f"{a} or {b}"])
    draws = SimpleNamespace(paired=False)
    curve = SimpleNamespace(
        side_lines=list, who_scored=list, left_out_lines=lambda: ["left out"], density=None,
        joined=None, curve=SimpleNamespace(draws=draws),
    )  # fmt: skip
    density = SimpleNamespace(verdict=SimpleNamespace(converged=True))
    pair = SimpleNamespace(lower=0.0, upper=1.0)
    found = comparison.ModelsResult(
        [],
        [density] * 3,
        [],
        [curve] * 3,
        [pair] * 2,
        [0.0] * 2,
        ["how"] * 2,
        names=("a", "b", "c"),
    )
    assert found.summary()[-2:] == ["a or b", "a or c"]
    monkeypatch.setattr(comparison, "compare_with_first", lambda *_: found)
    monkeypatch.setattr(of_report, "require_one_space", lambda runs: None)
    monkeypatch.setattr(of_report, "drawing", lambda *_: None)
    options = SimpleNamespace(curve=SimpleNamespace(recall_range=None))
    content = SimpleNamespace(density=SimpleNamespace(estimate=density), found=1, options=options)
    runs = [SimpleNamespace(fingerprint=name) for name in "abc"]
    lines, _ = of_report._judged("abc", runs, [content] * 3)
    assert lines[:2] == ["a or b", "a or c"] and lines.count("a: left out") == 1


def test_models_without_scores_say_what_is_missing(tmp_path, inside):
    write_run(tmp_path / "one.h5", walkers=16, seed=1)
    write_run(tmp_path / "two.h5", walkers=16, seed=2)
    with h5py.File(tmp_path / "two.h5", "r+") as file:
        file.attrs["model_fingerprint"] = "another"
    assert inside("report.py", "one.h5", "two.h5", "--output", "both.html")[0] == 0
    part = section((tmp_path / "both.html").read_text(encoding="utf-8"))
    assert lines_of(part)[0] == "Give --rule, --scores or --bank to compare precision and recall."
    assert part.count("<svg") == 1


def test_three_runs_of_one_model_are_shown_and_not_compared(tmp_path, inside):
    names = [f"{name}.h5" for name in ("one", "two", "three")]
    for seed, name in enumerate(names, 1):
        write_run(tmp_path / name, walkers=16, seed=seed, rounds=4)
    assert inside("report.py", *names, "--output", "all.html")[0] == 0
    part = section((tmp_path / "all.html").read_text(encoding="utf-8"))
    assert "These runs cannot be compared: these are runs of one model" in part
    assert 'href="#run2"' in part
