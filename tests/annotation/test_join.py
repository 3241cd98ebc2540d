"""Scores joined with their keys: lanes of a run in two sets, who scored nothing, tiny weights."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scored_model import a_density, scored_inputs

from omniinput_hpc.annotation.join import join_scores
from omniinput_hpc.annotation.tasks import KeyItem, Task, read_key, write_key, write_tasks
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.precision_recall.from_scores import bin_scores, scored_curve
from omniinput_hpc.results.scores import annotator_columns, summarize_scores

RUN = {"path": "runs/r.h5", "model_fingerprint": "m", "range": [1.0, 2.0]}


def write_set(folder, name, items, law="by-weight", runs=(RUN,)):
    """Write a task set and its key."""
    path = folder / f"{name}.tasks.jsonl"
    tasks_id = write_tasks(path, "text", [Task(item.id, "x") for item in items])
    header = {
        "tasks_id": tasks_id, "law": law, "width": 1.0, "range": [1.0, 2.0], "per_bin": 4,
        "runs": list(runs), "duplicates": 0,
    }  # fmt: skip
    write_key(folder / f"{name}.tasks.key.jsonl", header, items)


def write_scores(folder, name, annotator, score_of, **more):
    """Write a score file; return its path."""
    word = {"seconds": 1, "when": "2026-01-01T00:00:00Z", "guideline": None, "annotator": annotator}
    path = folder / f"{name}.scores.{annotator}.jsonl"
    lines = [{"id": id_, "score": score, **word, **more} for id_, score in score_of.items()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def drawn(id_, lane, x, log_weight=-1.0, run=0):
    return KeyItem(id_, run, 1.0, 1.1, log_weight, 1, [x], lane)


@pytest.mark.parametrize(
    ("second", "lanes"),
    [
        ({}, 2),  # an older version: the same path
        ({"created": "2026-01-01T00:00:00"}, 2),
        ({"created": "2026-01-01T00:00:00", "path": "../elsewhere/r.h5"}, 2),
        ({"created": "2026-01-01T00:00:00", "path": "runs/s.h5"}, 4),  # begun in the same second
        ({"created": "2026-01-02T00:00:00"}, 4),  # another run of the same name
        ({"path": "runs/s.h5"}, 4),
    ],
)
def test_lanes_of_a_run_are_the_same_in_two_task_sets(tmp_path, second, lanes):
    first = {**RUN, **({"created": "2026-01-01T00:00:00"} if "created" in second else {})}
    for name, run, x in (("one", first, 0), ("two", {**RUN, **second}, 10)):
        write_set(tmp_path, name, [drawn(f"{name}{i}", i % 2, x + i) for i in range(4)], runs=[run])
    paths = [
        write_scores(tmp_path, name, "ana", {f"{name}{i}": 0.5 for i in range(4)})
        for name in ("one", "two")
    ]
    joined = join_scores("m", paths)
    scored = joined.scored
    apart = [note for note in joined.notes if "were drawn separately from different runs" in note]
    assert len(apart) == (lanes == 4)
    assert len(scored.lane_i) == 8
    assert bin_scores(scored).lanes_b[0] == lanes
    assert read_key(tmp_path / "one.tasks.key.jsonl").runs[0].created == first.get("created")


def test_who_scored_nothing_of_this_model_is_left_out_and_named(tmp_path):
    """An empty file is a person's as much as a judge's: it belongs to nobody yet."""
    other = {**RUN, "model_fingerprint": "other"}
    items = [drawn("a", 0, 0), drawn("b", 1, 1), drawn("c", 0, 2, run=1),
             KeyItem("g", None, None, None, None, 0, [], None, gold=1.0)]  # fmt: skip
    write_set(tmp_path, "r", items, runs=[RUN, other])
    paths = [
        write_scores(tmp_path, "r", "judge", {"a": 1.0, "b": 0.0, "g": 0.5}, judge="rule x:y"),
        write_scores(tmp_path, "r", "ana", {}),
        write_scores(tmp_path, "r", "ben", {"c": 0.5, "g": 0.0}),
    ]
    joined = join_scores("m", paths)
    assert joined.scored.annotators == ["judge"] and joined.judges == ["rule x:y"]
    np.testing.assert_array_equal(joined.scored.score_ai, [[1.0, 0.0]])
    np.testing.assert_array_equal(joined.given_ag, [[0.5]])
    assert joined.first_ar.shape == (1, 0)
    assert list(joined.notes) == [
        f"{name} has scored no input of this model and is left out" for name in ("ana", "ben")
    ]
    assert join_scores("other", paths).scored.annotators == ["ben"]
    with pytest.raises(UserError, match="no input of this model is scored yet"):
        join_scores("m", paths[1:])
    assert join_scores("m", paths, n_sites=1).scored.annotators == ["judge"]
    with pytest.raises(UserError, match="show inputs of 1 sites of this model, and the run has 2"):
        join_scores("m", paths, n_sites=2)


@pytest.mark.parametrize(
    "judges", [(None, "rule x:y"), ("rule x:y", None), ("rule x:y", "rule x:z")]
)
def test_a_person_and_a_judge_of_one_name_are_not_one(tmp_path, judges):
    """Else whoever's file comes last replaces the scores of the other."""
    (tmp_path / "more").mkdir()
    paths = []
    for folder, judge in zip((tmp_path, tmp_path / "more"), judges, strict=True):
        write_set(folder, "r", [drawn("a", 0, 0), drawn("b", 1, 1)])
        paths.append(
            write_scores(folder, "r", "ana", {"a": 1.0}, **({"judge": judge} if judge else {}))
        )
    with pytest.raises(UserError, match="ana is the name of both"):
        join_scores("m", paths, tmp_path / "r.tasks.key.jsonl")
    paths[1].write_text("")  # it belongs to nobody yet
    assert join_scores("m", paths, tmp_path / "r.tasks.key.jsonl").judges == [judges[0]]


def test_scores_of_one_person_in_two_files_of_one_set(tmp_path):
    (tmp_path / "more").mkdir()
    write_set(tmp_path, "r", [drawn("a", 0, 0), drawn("b", 1, 1)])
    paths = [
        write_scores(tmp_path, "r", "ana", {"a": 1.0, "b": 0.5}),
        write_scores(tmp_path / "more", "r", "ana", {"a": 0.0, "b": 0.5}),
    ]
    joined = join_scores("m", paths, tmp_path / "r.tasks.key.jsonl")
    np.testing.assert_array_equal(joined.scored.score_ai, [[0.0, 0.5]])
    assert joined.notes == [f"{paths[1]}: replaces ana's scores of 1 task in an earlier file"]


def test_names_that_differ_in_case_only_are_noted(tmp_path):
    write_set(tmp_path, "r", [drawn("a", 0, 0), drawn("b", 1, 1)])
    paths = [write_scores(tmp_path, "r", name, {"a": 1.0, "b": 0.0}) for name in ("gus", "Gus")]
    joined = join_scores("m", paths)
    assert joined.scored.annotators == ["Gus", "gus"]
    assert joined.notes == ["Gus and gus differ only in case and count as two annotators"]


def test_an_annotator_outside_the_curves_bins_stops_nobody():
    scored = scored_inputs(np.random.default_rng(1), per_bin=40, annotators=3, bias=0.1)
    scored.score_ai[1, scored.bin_i > 0] = np.nan
    few = np.flatnonzero(scored.bin_i == 0)[20:]
    scored.score_ai[:, few] = np.nan  # the first bin has too few: it is not counted
    result = scored_curve(a_density(1), scored)
    assert not result.used_b[0]
    (line,) = [x for x in summarize_scores(result, scored, "low") if x.startswith("AUPR by")]
    assert "a1 not known" in line and "nan" not in line and "standard deviation 0." in line


def test_draws_count_only_where_the_input_was_scored(tmp_path):
    """In a second set that is scored in part, the input is as often unscored as the others."""
    write_set(tmp_path, "one", [replace(drawn("a", 0, 0), draws=9), drawn("b", 1, 1)])
    again = [replace(drawn("c", 0, 0), draws=9), drawn("d", 1, 1), drawn("e", 1, 2)]
    write_set(tmp_path, "two", [*again, replace(drawn("f", 1, 2), draws=0, repeats="e")])
    first = write_scores(tmp_path, "one", "ana", {"a": 1.0, "b": 0.5})
    second = write_scores(tmp_path, "two", "ana", {"d": 0.5, "f": 0.5})
    scored = join_scores("m", [first, second]).scored
    np.testing.assert_array_equal(scored.weight_i, [9, 2, 1])  # e is scored by its repeat
    write_scores(tmp_path, "two", "rule", {"c": 1.0}, judge="rule x:y")
    both = join_scores("m", [first, second, tmp_path / "two.scores.rule.jsonl"]).scored
    np.testing.assert_array_equal(both.weight_i, [9, 2, 9, 1])  # the judge's draws are apart
    assert np.isnan(both.score_ai[:, 2]).tolist() == [True, False]


def test_an_annotators_own_r_counts_only_draws_that_they_scored(tmp_path):
    """Ana scored one set and ben another; a common input was drawn 9 of 10 times in each."""
    common = replace(drawn("a", 0, 0), draws=9)
    write_set(tmp_path, "one", [common, drawn("b", 1, 1)])
    write_set(tmp_path, "two", [replace(common, id="c"), drawn("d", 1, 2)])
    paths = [
        write_scores(tmp_path, "one", "ana", {"a": 1.0, "b": 0.5}),
        write_scores(tmp_path, "two", "ben", {"c": 1.0, "d": 0.0}),
        write_scores(tmp_path, "two", "rule", {"c": 0.0, "d": 1.0}, judge="rule x:y"),
    ]
    scored = join_scores("m", paths).scored
    each = [scored.of(a).means().r_b[0] for a in range(3)]
    np.testing.assert_allclose(each, [0.95, 0.9, 0.1])
    assert scored.means().r_b[0] == pytest.approx((18 * 2 / 3 + 0.5 + 0.5) / 20)  # of all draws
    columns = annotator_columns(scored.part(scored.bin_i == 0))
    np.testing.assert_allclose([columns[f"r_{n}"][0] for n in ("ana", "ben", "rule")], each)


def test_weights_far_below_the_smallest_number_still_count(tmp_path):
    """Shares of e^-800 and e^-801 are 0 as numbers; of each other they are 73 and 27 %."""
    write_set(tmp_path, "r", [drawn("a", 0, 0, -800.0), drawn("b", 1, 1, -801.0)], "uniform")
    scored = join_scores("m", [write_scores(tmp_path, "r", "ana", {"a": 1.0, "b": 0.0})]).scored
    assert bin_scores(scored).r_b[0] == pytest.approx(1 / (1 + np.exp(-1.0)))


@pytest.mark.parametrize("repeated", [False, True])
def test_an_input_that_two_runs_drew_uniformly_has_both_weights(tmp_path, repeated):
    """Else inputs that only one run recorded would count too much."""
    half = np.log(0.5)  # in each run a wrong input, which both recorded, and a right one
    items = [
        *(drawn(f"both{run}", 0, 0, half, run) for run in (0, 1)),
        *(drawn(f"one{run}", 1, 1 + run, half, run) for run in (0, 1)),
    ]
    if repeated:  # it comes first, and adds no weight
        items = [replace(items[0], id="again", draws=0, repeats="both0"), *items]
    write_set(tmp_path, "r", items, "uniform", runs=[RUN, {**RUN, "path": "runs/s.h5"}])
    given = {item.id: float(item.id.startswith("one")) for item in items}
    scored = join_scores("m", [write_scores(tmp_path, "r", "ana", given)]).scored
    assert bin_scores(scored).r_b[0] == pytest.approx(0.5)
    given.pop("both1")  # the second run's draw of it does not count then
    scored = join_scores("m", [write_scores(tmp_path, "r", "ana", given)]).scored
    assert bin_scores(scored).r_b[0] == pytest.approx(2 / 3)
