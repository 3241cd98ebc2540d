"""A round's records become the slabs that the layout names, for every method and rank."""

import numpy as np
import pytest
from runs_in_progress import begin, config_of

from omniinput_hpc.runfile import layout, writers
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.runfile.records import STATE_DATASETS, slabs_of_round
from omniinput_hpc.sampling import loop
from omniinput_hpc.tempering.ensembles import parameters_of

LANGUAGE = ["model.factory=markov_model:markov", "bins.upper=8.125", "samples.every=1"]
FLAT = ["sampler.method=wang-landau", "run.burn_in=4", "ladder.betas=[0.0]"]
METHODS = {
    "parallel tempering": [],
    "gaussian": ["ladder.kappa=[0.0, 2.0, 0.0, 0.0]", "ladder.z0=[0.0, 1.0, 0.0, 0.0]"],
    "tuned gaussian": [
        "ladder.kappa=[0.0, 2.0, 0.0, 0.0]", "ladder.z0=[0.0, 1.0, 0.0, 0.0]", "ladder.tune=true",
        "run.burn_in=4",
    ],
    "wang-landau": [*FLAT, "wang_landau.windows=3"],
    "kept directions": [
        *FLAT, "wang_landau.windows=3", "wang_landau.proposal=directional",
        "wang_landau.proposal_beta=[0.5, 2.0]", "wang_landau.direction=kept",
    ],
    "ancestral": [*LANGUAGE, "sampler.method=ancestral", "ladder.betas=[0.0, 2.0, 4.0, 5.0]"],
    "annealed": [*LANGUAGE, "sampler.method=annealed", "ladder.betas=[5.0, 5.5, 6.0, 6.5]"],
    "mixture": [
        "model.factory=toy_models:coupled", "bins.lower=-40.0", "bins.upper=40.0",
        "kernel.name=mixture",
        "kernel.parts=[{name='metropolis'}, {name='discrete-langevin', step_size=0.5}]",
    ],
}  # fmt: skip

DATASETS = {
    **STATE_DATASETS, "beta": "state/beta", "lane_counts_gb": "histogram/lane_counts",
    "z_sum_b": "histogram/z_sum", "heading_w": "state/heading",
}  # fmt: skip


@pytest.fixture(scope="module", params=METHODS)
def run(request, tmp_path_factory):
    """A run after its burn-in and two counted rounds, its writer closed."""
    folder = tmp_path_factory.mktemp("records")
    found = begin(config_of(folder, "run.rounds=2", "run.burn_in=1", *METHODS[request.param]))
    loop.sample(found)
    found.writer.close()
    return found


def of_ladder(run):
    """Return datasets over rungs or pairs whose every number tells its place."""
    k, w = run.geometry.n_rungs, run.geometry.n_walkers
    pairs = np.arange(k - 1)
    return {
        "exchange/attempted": pairs + 100,
        "exchange/accepted": pairs + 200,
        "exchange/round_trips": np.arange(w * k),
        "state/swaps": np.stack([pairs, pairs + 1], axis=1),
        "ladder/rejection": pairs / 10,
        "ladder/z_std": np.arange(k) / 20,
    }


def slabs_of(run, held):
    records = [run.rungs[k].record_of_round() for k in held]
    return slabs_of_round(records, of_ladder(run), held, run.geometry)


@pytest.mark.parametrize("n_ranks", [1, 2, 4])
def test_names_and_shapes_are_the_layouts(run, n_ranks):
    g, share = run.geometry, run.geometry.n_rungs // n_ranks
    fields = layout.layout(g)
    sums = {name for name in fields if name.startswith("checksum/")}  # the writer adds them
    written = {name for name, field in fields.items() if field.per != "once"} - sums
    for rank in range(n_ranks):
        held = range(rank * share, (rank + 1) * share)
        slabs = slabs_of(run, held)
        assert slabs.keys() == written
        for name, values in slabs.items():
            for round_ in (-1, 0, 1):
                where = layout.slab(fields[name], round_, held, g.n_rungs)
                if where is not None:
                    assert values.shape == layout.shape_of(fields[name], where), name
            kind = np.dtype(fields[name].dtype)
            assert np.can_cast(values.dtype, kind, "same_kind"), name


def test_ranks_parts_join_to_the_whole(run):
    whole = slabs_of(run, range(4))
    parts = [slabs_of(run, range(k, k + 1)) for k in range(4)]
    for name, values in whole.items():
        if name != "exchange/round_trips":  # of all walkers, by rung 0's holder
            np.testing.assert_array_equal(np.concatenate([p[name] for p in parts]), values)


def test_a_checkpoint_gives_back_what_was_written(run):
    with open_run(run.config.run.output) as done:
        states = done.checkpoint(range(4)).rungs
    for rung, state in zip(run.rungs, states, strict=True):
        record = rung.record_of_round()
        for field, name in DATASETS.items():
            if name in record:
                np.testing.assert_array_equal(getattr(state, field), record[name], err_msg=name)
        kappa_z0 = record.get("state/gaussian", parameters_of(rung.ensemble)[1:])
        np.testing.assert_array_equal([state.kappa, state.z0], kappa_z0)


def test_a_slab_of_another_shape_is_refused(run, tmp_path):
    """By the gathering writer, which sends bytes: what follows would be read in wrong places."""
    world, g = run.world, run.geometry
    path = tmp_path / "run.h5"
    layout.create(path, g, {}, {"config": "", "model_fingerprint": ""})
    writer = writers.open_writer("gather", path, g, range(4), world)
    slabs = slabs_of(run, range(4))
    writer.commit(0, slabs, 1)
    slabs["samples/z"] = slabs["samples/z"][:, :-1]
    with pytest.raises(ValueError, match="samples/z"):
        writer.commit(1, slabs, 2)
    writer.close()
