"""The draw's mean score estimates r in a wide bin; draws that ignore the weights do not."""

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from configs import config_with
from lattice import Lattice, first_is_zero, independent_run

from omniinput_hpc.annotation import drawing, task_set
from omniinput_hpc.annotation.display import Display, values_as_text
from omniinput_hpc.annotation.scores import ScoreFile
from omniinput_hpc.annotation.task_bins import bins_of_run
from omniinput_hpc.annotation.tasks import key_path, read_key, read_tasks
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run, density_of_runs
from omniinput_hpc.estimators.samples import RecordedSamples

MODEL = Lattice()
BETA_K = np.array([-4.0, 0.0, 4.0])
FINE = (np.arange(len(MODEL.z_l()) + 1) - 0.5) * MODEL.unit
EDGES = np.array([FINE[0], FINE[13], FINE[-1]])  # two wide bins, r far from constant in each
PER_BIN, TRIALS = 40, 400


def exact_r():
    count, right = (MODEL.bin_sums(EDGES, v) for v in (MODEL.count_l(), MODEL.right_l()))
    return right / count


@pytest.fixture(scope="module")
def run():
    return independent_run(MODEL, BETA_K, FINE, rounds=40, walkers=8, moves=20, seed=3)


@pytest.fixture(scope="module")
def density(run):
    return density_of_run(run)


@pytest.fixture(scope="module")
def pool(run, density):
    """Per bin: weight and score of each distinct recorded input, and of each sample."""
    all_ = drawing.recorded([run], density, EDGES)
    x_i = run.x_rksd[all_.round_i, all_.rung_i, all_.index_i]
    bin_i = np.searchsorted(EDGES, all_.z_i, side="right") - 1
    pools = []
    for b in range(2):
        i = np.flatnonzero(bin_i == b)
        x_u, of_i = np.unique(x_i[i], axis=0, return_inverse=True)
        w_u = np.bincount(of_i.reshape(-1), np.exp(all_.log_w_i[i] - all_.log_w_i[i].max()))
        pools.append((w_u / w_u.sum(), first_is_zero(x_u), first_is_zero(x_i[i])))
    return pools


def test_names_tell_inputs_apart(run, density):
    all_ = drawing.recorded([run], density, EDGES)
    x_i = run.x_rksd[all_.round_i, all_.rung_i, all_.index_i]
    assert len(np.unique(all_.name_i, axis=0)) == len(np.unique(x_i, axis=0))
    assert (run.z_rks[all_.round_i, all_.rung_i, all_.index_i] == all_.z_i).all()
    assert (all_.lane_i == all_.index_i % run.walkers).all()


def test_all_weighted_samples_give_r(pool):
    """The pool itself is right: what the draw is unbiased for."""
    for (weight_u, score_u, _), r in zip(pool, exact_r(), strict=True):
        assert abs((weight_u * score_u).sum() - r) < 0.03


def sigmas(means, truth):
    means = np.asarray(means)
    return abs(means.mean() - truth) / (means.std(ddof=1) / np.sqrt(len(means)))


def plain(draw):
    return lambda p, w, s, rng: draw(p, w, s, rng).mean()


def successive(weight_u, score_u, rng):
    """The tempting wrong way: without replacement, in proportion to what is left."""
    return score_u[rng.choice(len(weight_u), PER_BIN, replace=False, p=weight_u)].mean()


def by_weight(weight_u, score_u, rng):
    draws_u = drawing.systematic_draw(weight_u, PER_BIN, rng)
    return (draws_u * score_u).sum() / draws_u.sum()


def deduplicated(weight_u, score_u, rng):
    """Wrong: how often an input was drawn is forgotten."""
    return score_u[drawing.systematic_draw(weight_u, PER_BIN, rng) > 0].mean()


def any_rung(weight_u, score_u, rng):
    """Wrong: the scores of a uniform draw without their weights."""
    return score_u[drawing.uniform_draw(weight_u, PER_BIN, rng) > 0].mean()


def test_the_mean_of_a_draw_is_unbiased_for_the_weighted_mean(pool):
    rng = np.random.default_rng(5)
    for weight_u, score_u, _ in pool:
        truth = (weight_u * score_u).sum()
        assert sigmas([by_weight(weight_u, score_u, rng) for _ in range(TRIALS)], truth) < 4


def test_wrong_draws_are_far_off(pool):
    rng = np.random.default_rng(5)
    weight_u, score_u, _ = pool[0]
    truth = (weight_u * score_u).sum()
    assert sigmas([any_rung(weight_u, score_u, rng) for _ in range(TRIALS)], truth) > 8
    skewed = np.arange(1, 81.0) ** 3  # a few heavy inputs, as of a walker that stood still
    skewed /= skewed.sum()
    score_u = (np.arange(80) > 60) * 1.0
    truth = (skewed * score_u).sum()
    for wrong in (successive, deduplicated):
        assert sigmas([wrong(skewed, score_u, rng) for _ in range(TRIALS)], truth) > 8, wrong
    assert sigmas([by_weight(skewed, score_u, rng) for _ in range(TRIALS)], truth) < 4


def test_a_systematic_draw_takes_the_floor_or_the_ceiling():
    rng = np.random.default_rng(0)
    weight = rng.random(30) ** 4
    share = 20 * weight / weight.sum()
    draws = np.array([drawing.systematic_draw(weight, 20, rng) for _ in range(4000)])
    assert (draws.sum(axis=1) == 20).all()
    assert (draws >= np.floor(share)).all() and (draws <= np.ceil(share)).all()
    error = np.sqrt((share % 1) * (1 - share % 1) / len(draws))
    assert (abs(draws.mean(axis=0) - share) < 4.5 * error + 1e-12).all()


def mean_scores(run, density, n_seeds):
    """Return the mean score of each bin's draws, [n_seeds, 2], and the last reports."""
    means = []
    for seed in range(n_seeds):
        (chosen,), reports = drawing.choose([run], density, EDGES, PER_BIN, "by-weight", seed)
        mine = [[c for c in chosen if c.bin_lower == edge] for edge in EDGES[:2]]
        draws = [np.array([c.draws for c in some]) for some in mine]
        scores = [first_is_zero(np.stack([c.x for c in some])) for some in mine]
        means.append([(d * s).sum() / d.sum() for d, s in zip(draws, scores, strict=True)])
    return np.array(means), reports


def test_a_random_part_of_very_many_samples_is_as_good(run, density, monkeypatch, pool):
    monkeypatch.setattr(drawing, "MOST_SAMPLES", 400)
    monkeypatch.setattr(drawing, "LEAST_OF_A_BIN", 150)
    n_b = drawing.samples_of_bins(run, EDGES)
    assert n_b.tolist() == [len(scores) for _, _, scores in pool] and (n_b > 400).all()
    truth_b = [(weight_u * score_u).sum() for weight_u, score_u, _ in pool]
    means, reports = mean_scores(run, density, 100)
    assert all(sigmas(means[:, b], truth_b[b]) < 4 for b in range(2))
    for report, n in zip(reports, n_b, strict=True):
        assert report.samples == n and abs(report.looked_at - 200) < 5 * np.sqrt(200)
        assert report.distinct <= report.looked_at
    assert "at random were looked at" in drawing.bin_table(reports)[-1]

    right = RecordedSamples.where
    monkeypatch.setattr(  # wrong: no random part
        RecordedSamples, "where", lambda some, keep_i: right(some, keep_i & (some.rung != 1))
    )
    means, _ = mean_scores(run, density, 40)
    assert max(sigmas(means[:, b], truth_b[b]) for b in range(2)) > 6


def test_choose_draws_in_every_bin_and_reports_it(run, density):
    (chosen,), reports = drawing.choose([run], density, EDGES, PER_BIN, "by-weight", seed=1)
    assert [r.lower for r in reports] == EDGES[:2].tolist()
    for b, report in enumerate(reports):
        mine = [c for c in chosen if c.bin_lower == EDGES[b]]
        assert sum(c.draws for c in mine) == PER_BIN and len(mine) == report.drawn
        assert len({tuple(c.x) for c in mine}) == len(mine)
        assert all(EDGES[b] <= c.z < EDGES[b + 1] for c in mine)
        assert report.samples > report.distinct >= report.effective > 1
        assert report.near == drawing.near_pairs(np.stack([c.x for c in mine]))
    for c in chosen:
        assert MODEL.z(c.x) == np.float32(c.z) and 0 <= c.lane < run.walkers
    (again,), _ = drawing.choose([run], density, EDGES, PER_BIN, "by-weight", seed=1)
    assert [c.x.tolist() for c in again] == [c.x.tolist() for c in chosen]


def mean_of(chosen, bin_lower):
    """Return the mean score of the draws of a bin; right is a z of 3 or more."""
    mine = [c for c in chosen if c.bin_lower == bin_lower]
    draws = np.array([c.draws for c in mine], dtype=float)
    return (draws * [c.z >= 3.0 for c in mine]).sum() / draws.sum()


@pytest.mark.parametrize("method", ["by-weight", "uniform"])
def test_two_runs_represent_a_bin_together(method):
    """The second run reached only the low end of the bin."""
    model = Lattice(12, 0.25)
    fine = (np.arange(len(model.z_l()) + 1) - 0.5) * model.unit
    runs = []
    for seed, beta_k in ((1, [-1.0, 0.0]), (2, [6.0, 9.0])):
        run = independent_run(model, beta_k, fine, walkers=16, moves=40, seed=seed)
        run.config = config_with(seed=seed)
        runs.append(run.record())
    edges = fine[8:17:8]
    count, right = (model.bin_sums(edges, v)[0] for v in (
        model.count_l(), model.count_l() * (model.z_l() >= 3.0)
    ))  # fmt: skip
    both = density_of_runs(runs)
    chosen, (report,) = drawing.choose(runs, both, edges, 2000, method, seed=1)
    assert report.drawn == sum(map(len, chosen)) and min(map(len, chosen)) > 20
    every = [item for some in chosen for item in some]
    if method == "uniform":
        weight = np.exp([item.log_weight for item in every])
        found = (weight * [item.z >= 3.0 for item in every]).sum() / weight.sum()
    else:
        found = mean_of(every, edges[0])
    assert found == pytest.approx(right / count, abs=0.05)
    alone = [
        drawing.choose([run], density_of_run(run), edges, 2000, "by-weight", 1)[0] for run in runs
    ]
    means = [mean_of(some, edges[0]) for (some,) in alone]
    assert np.mean(means) < right / count - 0.1  # what each run represents alone


@pytest.mark.slow
def test_the_log_weights_of_a_uniform_draw_give_r(run, density):
    (chosen,), _ = drawing.choose([run], density, EDGES, 10**6, "uniform", seed=1)
    for b, r in enumerate(exact_r()):
        mine = [c for c in chosen if c.bin_lower == EDGES[b]]
        w = np.exp([c.log_weight for c in mine])
        assert abs(w.sum() - 1) < 1e-9
        assert abs((w * first_is_zero(np.stack([c.x for c in mine]))).sum() - r) < 0.03


def test_near_pairs():
    x = np.array([[0] * 10, [0] * 8 + [1] * 2, [0] * 7 + [2] * 3, [5] * 10])
    assert drawing.near_pairs(x) == 1


def test_a_range_without_samples(run, density):
    with pytest.raises(UserError, match="no recorded samples with outputs from 50 to 51"):
        drawing.choose([run], density, np.array([50.0, 51.0]), 5, "by-weight", 1)


HEADER = {
    "law": "by-weight", "runs": [{"path": "a.h5", "model_fingerprint": "m", "range": [0, 7]}],
    "width": 3.5, "range": [0, 7], "per_bin": PER_BIN, "duplicates": 0,
}  # fmt: skip
SHOWN = Display("text", values_as_text, None, "")
HOW = task_set.HowDrawn(PER_BIN, 3.5, "by-weight", 1)


def drawn_run(chosen, shown=SHOWN):
    return task_set.DrawnRun(chosen, [], shown, {})


def test_the_task_set_is_blind_and_the_key_leads_back(tmp_path, run, density):
    (chosen,), _ = drawing.choose([run], density, EDGES, PER_BIN, "by-weight", seed=1)
    path = tmp_path / "a.tasks.jsonl"
    gold = [task_set.GoldItem("a gold item", 0.75)]
    n = task_set.write_task_set(path, [drawn_run(chosen)], HEADER, gold=gold)
    tasks = read_tasks(path)
    key = read_key(key_path(path), tasks.tasks_id)
    assert n == len(tasks.tasks) == len(chosen) + round(0.1 * len(chosen)) + 1
    by_id = key.by_id()
    for task in tasks.tasks:
        item = by_id[task.id]
        expected = "a gold item" if item.gold is not None else " ".join(map(str, item.x))
        assert task.text == expected
        if item.repeats:
            assert item.draws == 0 and by_id[item.repeats].x == item.x
    assert [i.gold for i in key.items if i.gold is not None] == [0.75]
    for line in path.read_text().splitlines()[1:]:
        assert sorted(json.loads(line)) == ["id", "text"]
    order = [by_id[t.id].bin_lower for t in tasks.tasks if by_id[t.id].draws]
    changes = sum(a != b for a, b in itertools.pairwise(order))
    assert changes > len(order) / 3  # bins are mixed, and ids do not follow the order
    assert [t.id for t in tasks.tasks] != sorted(t.id for t in tasks.tasks)


def test_no_id_is_a_number_to_a_spreadsheet():
    """All digits become 1.2E+15, and 12e34 does, too; without the rule there are such."""

    def numbers(ids):
        return [id_ for id_ in ids if re.fullmatch("[0-9]+(e[0-9]+)?", id_)]

    rng = np.random.default_rng(1)
    assert not numbers(task_set._new_id(rng) for _ in range(5000))
    rng = np.random.default_rng(1)
    assert numbers(rng.bytes(8).hex() for _ in range(5000))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_gold_items_that_another_program_saved(tmp_path, encoding):
    path = tmp_path / "gold.jsonl"
    lines = [{"text": "Gr\u00fc\u00dfe", "score": 1.0}, {"text": "x", "score": 0}]
    text = "\r\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    path.write_bytes(text.encode(encoding))
    found = task_set.read_gold(path, "text")
    assert found == [task_set.GoldItem("Gr\u00fc\u00dfe", 1.0), task_set.GoldItem("x", 0.0)]
    path.write_text("text,score\nx,1\n")
    with pytest.raises(UserError, match=r"line 1: expected a .*: an object \{...\} on each line"):
        task_set.read_gold(path, "text")


def test_another_draw_has_other_ids_and_the_same_draw_the_same(tmp_path, run, density):
    (chosen,), _ = drawing.choose([run], density, EDGES, 5, "by-weight", seed=1)
    path = tmp_path / "a.tasks.jsonl"

    def ids(chosen=chosen, gold=(), **header):
        drawn = drawn_run(chosen)
        task_set.write_task_set(path, [drawn], {**HEADER, **header}, repeats=0, gold=gold)
        return read_tasks(path).ids

    first = ids()
    assert ids() == first
    assert ids([replace(chosen[0], lane=7, log_weight=-1.0), *chosen[1:]]) == first  # as drawn
    x = (chosen[0].x + 1) % MODEL.n_values
    for other in (
        ids([replace(chosen[0], x=x), *chosen[1:]]),
        ids([replace(chosen[0], draws=9), *chosen[1:]]),
        ids(width=7.0),
        ids(law="uniform"),
        ids(gold=[task_set.GoldItem("gold", 1.0)]),
    ):
        assert not other & first


def test_gold_items_have_the_prefix_that_all_runs_share(tmp_path, run, density):
    (chosen,), _ = drawing.choose([run], density, EDGES, 5, "by-weight", seed=1)
    path, gold = tmp_path / "a.tasks.jsonl", [task_set.GoldItem("gold", 1.0)]
    begun, other = (drawn_run(chosen, replace(SHOWN, prefix=prefix)) for prefix in ("Once", "Two"))
    for drawn, prefix in (([begun, begun], "Once"), ([begun, other], None)):
        header = {**HEADER, "runs": HEADER["runs"] * 2}
        task_set.write_task_set(path, drawn, header, gold=gold)
        assert [t.prefix for t in read_tasks(path).tasks if t.text == "gold"] == [prefix]


def test_two_runs_in_one_set_and_scores_that_are_in_the_way(tmp_path, run, density):
    (chosen,), _ = drawing.choose([run], density, EDGES, 5, "by-weight", seed=1)
    path = tmp_path / "both.tasks.jsonl"
    header = {**HEADER, "runs": HEADER["runs"] * 2}
    task_set.write_task_set(path, [drawn_run(chosen)] * 2, header, repeats=0)
    assert sorted(i.run for i in read_key(key_path(path)).items) == [0] * len(chosen) + [1] * len(
        chosen
    )
    scores = tmp_path / "both.scores.ana.jsonl"
    scores.write_text("")  # as an annotator leaves it who scored nothing
    task_set.write_task_set(path, [drawn_run(chosen)] * 2, header, repeats=0)
    before = path.read_bytes()
    with ScoreFile(scores, read_tasks(path)), pytest.raises(UserError, match="has scores already"):
        task_set.write_task_set(path, [drawn_run(chosen)] * 2, header)
    scores.write_text("a line")
    with pytest.raises(UserError, match="has scores already"):
        task_set.write_task_set(path, [drawn_run(chosen)] * 2, header)
    assert path.read_bytes() == before
    path.rename(tmp_path / "away.jsonl")  # the key of what was scored is still there
    key = key_path(path).read_bytes()
    with pytest.raises(UserError, match="has scores already"):
        task_set.write_task_set(path, [drawn_run(chosen)] * 2, header)
    assert key_path(path).read_bytes() == key and not path.exists()
    with pytest.raises(UserError, match="cannot be mixed"):
        task_set.common_kind(
            [
                drawn_run([]),
                drawn_run([], Display("image", values_as_text, None, "")),
            ]
        )


def test_a_run_is_drawn_from_by_its_number_and_the_key_says_how(run, density, monkeypatch):
    monkeypatch.setattr(task_set, "shown_of", lambda config: SHOWN)
    edges = FINE[::5]
    z_range = (float(edges[0]), float(edges[-1]))
    how = replace(HOW, width=5 * MODEL.unit)
    bins = bins_of_run(run, *z_range, how.width)
    one, again, two = (
        task_set.draw_from([run], density, [bins], z_range, how, n)[0] for n in (0, 0, 1)
    )
    (chosen,), reports = drawing.choose([run], density, edges, PER_BIN, "by-weight", 1)
    same = [np.array_equal(a.x, b.x) for a, b in zip(one.chosen, chosen, strict=True)]
    assert all(same) and one.reports == reports
    draws = [[(item.z, item.draws) for item in drawn.chosen] for drawn in (one, again, two)]
    assert draws[0] == draws[1] != draws[2]
    narrow = replace(two, about={**two.about, "range": [-1.0, 2.0]})
    header = task_set.key_header([one, narrow], how)
    assert header["range"] == [-1.0, z_range[1]] and header["law"] == "by-weight"
    assert [r["model_fingerprint"] for r in header["runs"]] == [run.fingerprint] * 2
    assert header["duplicates"] == 2 * sum(r.samples - r.distinct for r in reports)


def test_shares_far_below_the_smallest_number_are_known():
    """Weights of e^-900 to 1 inside a wide bin, an input recorded twice."""
    log_w_i, of_i = np.array([-900.0, 0.0, -900.0, -2.0]), np.array([1, 0, 1, 2])
    found = drawing._log_shares(log_w_i, of_i)
    total = np.log(1 + np.exp(-2))
    np.testing.assert_allclose(found, [-total, np.log(2) - 900 - total, -2 - total], rtol=1e-14)


def test_a_uniform_draw_of_tiny_weights_makes_a_key_that_is_read(tmp_path, run, density):
    """A bin as wide as the space, seen from a cold rung: weights that differ by 900 nats."""

    class Steep:
        @staticmethod
        def log_mixture(z_i, log_q_ik, number):
            return 400.0 * z_i

    edges = np.array([FINE[0], FINE[-1]])
    (chosen,), reports = drawing.choose([run], Steep(), edges, PER_BIN, "uniform", 1)
    assert min(c.log_weight for c in chosen) < -750 and reports[0].drawn == PER_BIN
    path = tmp_path / "a.tasks.jsonl"
    task_set.write_task_set(path, [drawn_run(chosen)], {**HEADER, "law": "uniform", "width": 7.0})
    assert len(read_key(key_path(path)).items) == PER_BIN + 4
