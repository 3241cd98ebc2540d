"""The plan of a run: its lines, and which numbers of ranks fit."""

import re
from dataclasses import replace

import numpy as np
import pytest
from run_tools import LATTICE
from runs_in_progress import WORLD, config_of

from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.sampling import build, plan, shapes
from omniinput_hpc.sampling.restart import Existing


def plan_of(folder, *changes, **options):
    config = config_of(folder, *changes)
    standard = {
        "devices": ["cpu", "cpu"], "hosts": ["a", "a"], "model_bytes": 2**20, "cache_bytes": 0,
        "writer": "mpio", "writer_reason": "because", "found": Existing(),
    }  # fmt: skip
    return plan.Plan(config, shapes.geometry_of(config, 4, 6), **{**standard, **options})


def lines_of(the_plan):
    """Return the plan's lines by their first word."""
    lines = plan.describe(the_plan).splitlines()
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}


def test_every_line(tmp_path):
    lines = lines_of(plan_of(tmp_path))
    assert list(lines) == [
        "model", "ladder", "ranks", "walkers", "rounds", "forwards", "memory", "hosts", "file",
    ]  # fmt: skip
    assert lines["model"] == "python, 6 sites of 4 values: a space of 10^3.6 inputs"
    assert lines["ladder"] == "4 rungs, parallel-tempering, beta -2 to 4"
    assert lines["ranks"] == "2 on 1 host(s), 2 rung(s) each, device cpu, 1 thread(s) per rank"
    assert lines["walkers"] == "8 per rung, one batch; 32 in all"
    assert lines["rounds"] == (
        "3 of burn-in + 5, of 3 exchanges x 5 moves = 15 moves per walker; "
        "24 samples per rung and round"
    )
    assert lines["forwards"] == "240 per rank, of 8 inputs each"
    assert lines["memory"].startswith("1.05 MB of weights + ")
    assert lines["hosts"].startswith("up to 2 rank(s) each, at peak ")
    assert ", new; writer mpio (because)" in lines["file"]


def test_gradients_of_every_rung_count(tmp_path):
    """A rank of 2 rungs keeps 2 arrays (8 walkers, 6 sites, 4 values), each as if it were two."""
    plain, kept = (
        plan_of(tmp_path, f"kernel.name={name}", model_bytes=0)
        for name in ("metropolis", "discrete-langevin")
    )
    found = [lines_of(one)["memory"].split(" of logits or gradients")[0] for one in (plain, kept)]
    assert found == ["0 B of weights + 2.3 kB", "0 B of weights + 5.38 kB"]


def test_the_precision_of_products_is_printed(tmp_path):
    on_cpu = lines_of(plan_of(tmp_path, "run.precision=tf32"))
    assert on_cpu["ranks"].endswith(
        '1 thread(s) per rank; precision = "tf32" has no effect on a CPU'
    )
    on_gpu = lines_of(plan_of(tmp_path, "run.precision=tf32", devices=["cuda:0", "cuda:1"]))
    assert on_gpu["ranks"].endswith("1 thread(s) per rank; matrix products in TF32")


def test_what_only_some_plans_have(tmp_path):
    more = lines_of(
        plan_of(tmp_path, cache_bytes=3 * 2**20, trials="found by trials", measured="5 MiB")
    )
    assert "3.15 MB of keys, values and packed weights" in more["memory"]
    assert more["walkers"].endswith("; found by trials") and more["measured"] == "5 MiB"
    unknown = lines_of(plan_of(tmp_path, model_bytes=None))
    assert "of weights" not in unknown["memory"] and unknown["hosts"].endswith("is not known")
    short = lines_of(plan_of(tmp_path, model_bytes=2**60))
    assert short["hosts"].endswith("too little; start fewer ranks per host")


@pytest.mark.parametrize(("found", "words"), [
    (Existing(resume=True, rounds=2, rounds_planned=5), "resumes after 2 of 5 rounds"),
    (Existing(resume=True, burn_in=1, rounds_planned=5), "resumes after 1 of 3 burn-in rounds"),
])  # fmt: skip
def test_where_a_run_resumes(tmp_path, found, words):
    assert words in lines_of(plan_of(tmp_path, found=found))["file"]


@pytest.mark.parametrize(("changes", "words"), [
    (["ladder.tune=true"], "tuned in burn-in"),
    (["kernel.name=lm-conditional", "kernel.look_ahead=true", "run.burn_in=4"], "with look_ahead"),
    (["ladder.kappa=[0.0, 0.0, 2.0, 0.0]", "ladder.z0=[0.0, 0.0, 1.0, 0.0]"], "1 of them Gaussian"),
    (["ladder.betas=[1.0, 2.0, 3.0, 4.0]"], "relative density, since no rung has beta = 0"),
    (["ladder.kappa=[0.0, 2.0, 0.0, 0.0]", "ladder.z0=[0.0, 0.0, 1.0, 0.0]"],
     "relative density, since no rung has beta = 0 without kappa or lambda"),
    (["sampler.method=wang-landau", "ladder.betas=[0.0]", "wang_landau.windows=3",
      "run.burn_in=4"],
     "4 rungs, wang-landau, 3 window(s) of z, beta 0 to 0"),
])  # fmt: skip
def test_ladders(tmp_path, changes, words):
    ranks = {"devices": ["cpu"], "hosts": ["a"]}
    assert words in lines_of(plan_of(tmp_path, *changes, **ranks))["ladder"]


@pytest.mark.parametrize(("change", "drawn"), [
    ("ladder.anchors=false", False), ("ladder.anchors=true", True),
    ("ladder.betas=[1.0, 2.0, 3.0, 4.0]", False),
    ("ladder.kappa=[0.0, 2.0, 0.0, 0.0]", False),
])  # fmt: skip
def test_beta_0_is_drawn_only_on_a_rung_that_is_an_anchor(tmp_path, change, drawn):
    keys = ["ladder.anchors=true", change]
    keys += ["ladder.z0=[0.0, 0.0, 0.0, 0.0]"] if "kappa" in change else []
    law = lines_of(plan_of(tmp_path, "law.kind=model", *keys))["law"]
    assert law == "inputs weigh as the [model] itself draws them" + (
        "; beta = 0 is drawn from this law" if drawn else ""
    )
    inside = {"n_inputs": "5"}
    some = lines_of(plan_of(tmp_path, "space.allowed=[[0, 1]]", *keys, inside=inside))["space"]
    words = "5 of these inputs, by a list in space.allowed"
    assert some == words + ("; beta = 0 draws them uniformly" if drawn else "")


WL = ("sampler.method=wang-landau", "run.burn_in=4", "wang_landau.proposal=range",
      "wang_landau.proposal_beta=[0.5, 1.0]")  # fmt: skip


@pytest.mark.parametrize(("changes", "keys"), [
    (["sampler.method=ancestral", "samples.every=1", "kernel.name=lm-conditional"],
     "run.burn_in, ladder.anchors, [kernel]"),
    (WL, "wang_landau.proposal"),
    ([*WL, "kernel.name=gibbs-with-gradients"], ""),
    ([*WL, "kernel.name=discrete-langevin"], ""),
    ([*WL, "kernel.name=discrete-langevin", "kernel.proposal_beta=[0.0, 1.0]"],
     "wang_landau.proposal"),
    ([], ""),
])  # fmt: skip
def test_keys_without_effect_are_named(tmp_path, changes, keys):
    lines = lines_of(plan_of(tmp_path, *changes, devices=["cpu"], hosts=["a"]))
    assert lines.get("note") == (f"without effect here: {keys}" if keys else None)


def test_a_ladder_from_the_models_own_beta_on_is_absolute(tmp_path):
    ranks = {"devices": ["cpu"], "hosts": ["a"]}
    made = plan_of(tmp_path, "ladder.betas=[1.0, 2.0, 3.0, 4.0]", model_beta=1.0, **ranks)
    assert "relative" not in lines_of(made)["ladder"]
    made = plan_of(tmp_path, "ladder.betas=[1.0, 2.0, 3.0, 4.0]", model_beta=0.5, **ranks)
    assert "relative" in lines_of(made)["ladder"]


def test_ranks_share_the_rungs_equally(tmp_path):
    config = config_of(tmp_path)
    for n_ranks in (1, 2, 4):
        shapes.check_shares(len(config.beta_k), n_ranks)
    with pytest.raises(UserError, match=r"3 ranks do not divide .* fit: 1, 2, 4$"):
        shapes.check_shares(len(config.beta_k), 3)
    with pytest.raises(UserError, match=r"5 ranks are more than the ladder's 4 rungs"):
        shapes.check_shares(len(config.beta_k), 5)


def test_blocks_let_more_ranks_share_the_work(tmp_path):
    for blocks, sizes in ((1, (1, 2, 4)), (4, (1, 2, 4, 8, 16)), (2, (1, 2, 4, 8))):
        for n_ranks in range(1, 20):
            config = config_of(tmp_path, f"sampler.blocks={blocks}")
            if n_ranks in sizes:
                shapes.check_ranks(config, n_ranks)
            else:
                with pytest.raises(UserError, match="numbers of ranks that fit: 1, 2, 4"):
                    shapes.check_ranks(config, n_ranks)


@pytest.mark.parametrize(("changes", "n_ranks", "words"), [
    ([], 16, r"16 ranks are more than the ladder's 4 rungs; .* fit: 1, 2, 4; or set "
     r"sampler.blocks = 4, in a new run$"),
    ([], 6, r"6 ranks .*; or set sampler.blocks = 3 and sampler.walkers = 9, in a new run$"),
    (["sampler.blocks=2"], 16, r"16 ranks are more than the ladder's 4 rungs of 2 blocks each "
     r"\(sampler.blocks\); .* fit: 1, 2, 4, 8; or set sampler.blocks = 4, in a new run$"),
    (["sampler.blocks=2"], 3, r"3 ranks do not divide the ladder's 4 rungs of 2 blocks each"),
    (["sampler.walkers='auto'"], 12, r"; or set sampler.blocks = 3, in a new run$"),
    (["sampler.method=wang-landau", "run.burn_in=4"], 8, "8 ranks .* that fit: 1, 5$"),
])  # fmt: skip
def test_a_check_names_the_blocks_that_would_do(tmp_path, changes, n_ranks, words):
    with pytest.raises(UserError, match=words):
        shapes.check_ranks(config_of(tmp_path, *changes), n_ranks)


def test_the_plan_of_blocks(tmp_path):
    ranks = {"devices": ["cpu"] * 8, "hosts": ["a"] * 8}
    lines = lines_of(plan_of(tmp_path, "sampler.blocks=4", **ranks))
    assert lines["ranks"].startswith("8 on 1 host(s), 2 of 4 blocks of 1 rung(s) each, ")
    assert lines["walkers"] == "8 per rung, in 4 blocks of 2, each a batch; 32 in all"
    assert lines["forwards"] == "240 per rank, of 2 inputs each"


@pytest.mark.parametrize("name", ["SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_many_launches_of_one_rank_are_refused(monkeypatch, name):
    monkeypatch.setenv(name, "4")
    with pytest.raises(UserError, match=f"4 processes were launched \\({name}\\)"):
        shapes.check_launch(1)
    shapes.check_launch(4)
    monkeypatch.setenv(name, "1")
    shapes.check_launch(1)


def test_counts_must_fit_32_bits(tmp_path):
    shapes.check_counters(config_of(tmp_path))
    many = config_of(tmp_path, "sampler.steps=100000", "sampler.exchanges=10000")
    with pytest.raises(UserError, match="overflow 32 bits"):
        shapes.check_counters(many)
    # A round of them fits, five that share a histogram do not.
    blocks = ("run.rounds=1000", "sampler.steps=1000", "sampler.exchanges=200000")
    shapes.check_counters(config_of(tmp_path, *blocks))
    with pytest.raises(UserError, match=r"set run\.histogram_blocks = ") as error:
        shapes.check_counters(config_of(tmp_path, *blocks, "run.histogram_blocks=200"))
    wanted = int(re.search(r"histogram_blocks = (\d+) or more", str(error.value))[1])
    shapes.check_counters(config_of(tmp_path, *blocks, f"run.histogram_blocks={wanted}"))
    with pytest.raises(UserError):
        shapes.check_counters(config_of(tmp_path, *blocks, f"run.histogram_blocks={wanted - 1}"))


def test_records_hold_all_that_a_rung_writes_of_its_samples_and_bins(tmp_path):
    """As large as its arrays: samples, their numbers, and the counts of groups of lanes."""
    observed = '[[observables]]\nname = "distinct"'
    text = LATTICE.format(output=tmp_path / "run.h5") + observed
    change = "model.factory=toy_models:normalized", "bins.upper=11.875", "ladder.betas=[0.0, 2.0]"
    method = "sampler.method=ancestral", "samples.every=1", "ladder.anchors=true"
    config = input_file.parse(text, "a.toml", [*change, *method])
    rung = build.build(WORLD, config, None).rungs[0]
    rung.begin_round()
    rung.start()
    rung.observe()
    some = ("samples/x", "samples/z", "samples/walker", "samples/log_q", "observables/distinct",
            "histogram/lane_counts")  # fmt: skip
    record = rung.record_of_round()
    n_bytes = sum(record[name].nbytes for name in some)
    found = shapes.bytes_of_records(build.build(WORLD, config, None).geometry, 1)
    assert n_bytes <= found <= n_bytes + 24 * (len(config.bins.edges) - 1)


def test_large_histograms_are_counted_with_their_copies(tmp_path):
    """165,000 bins of 96 rungs took 20 GB on one rank, where 2.5 GB were told."""
    g = shapes.geometry_of(config_of(tmp_path), 4, 6)
    large = replace(g, n_bins=165_000, n_walkers=32, n_rungs=96)
    lanes = 96 * 16 * 8 * 165_000
    assert shapes.bytes_of_commit(large, 96, 1) == (lanes, 2 * lanes)
    assert shapes.bytes_of_commit(large, 2, 48) == (lanes // 48, 3 * lanes)


def test_a_file_larger_than_the_disk_is_told(tmp_path):
    config = config_of(tmp_path / "new/folder")
    g = shapes.geometry_of(config, 4, 6)
    assert plan.disk_warnings(config, g) == []
    assert "is free there" in plan.disk_warnings(config, replace(g, rounds=2**40))[0]


def test_a_large_file_is_told_with_what_makes_it_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "free_bytes", lambda folder: 2**60)
    config = config_of(tmp_path)
    g = shapes.geometry_of(config, 4, 6)
    many_bins = replace(g, rounds=10_000, n_bins=100_000)
    [words] = plan.disk_warnings(config, many_bins)
    assert "of it for histogram" in words and "run.histogram_blocks" in words
    assert plan.disk_warnings(config, replace(many_bins, rounds_per_block=50)) == []
    [words] = plan.disk_warnings(config, replace(g, samples_per_round=80_000, rounds=10_000))
    assert "of it for samples" in words and "samples.every" in words


def test_the_environment_names_libraries():
    here = plan.environment()
    assert here["numpy"] == np.__version__ and set(here) == {
        "python",
        "numpy",
        "h5py",
        "mpi",
        "cpu",
    }


class TwoRanks:
    """What another rank says, beside this one."""

    def texts(self, text):
        return [text, '{"gpu": "A", "gpu_driver": "2"}']


def test_the_gpus_of_all_ranks_are_named_once():
    assert plan.gpus(TwoRanks(), {"gpu": "A", "cudnn": "9"}) == {
        "cudnn": "9", "gpu": "A", "gpu_driver": "2",
    }  # fmt: skip
    assert plan.gpus(TwoRanks(), {"gpu": "none"})["gpu"] == "A, none"
