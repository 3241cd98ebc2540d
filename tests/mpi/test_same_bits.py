"""The same bytes for any number of ranks and either writer, equal to the serial oracle's."""

import numpy as np
import oracle
import pytest
from language_folders import save_decoder
from run_tools import assert_same
from toy_models import lattice

from omniinput_hpc.config import input_file as reader
from omniinput_hpc.histogram import lane_groups
from omniinput_hpc.runfile.reader import open_run

SIZES = [1, 2, 4]
ON_SIZES = [pytest.param(n, marks=pytest.mark.mpi(min_size=n)) for n in SIZES]


@pytest.mark.mpi
@pytest.mark.parametrize("writer", ["mpio", "gather"])
@pytest.mark.parametrize(
    "n_ranks", [pytest.param(n, marks=pytest.mark.mpi(min_size=n)) for n in SIZES]
)
def test_equals_the_serial_oracle(n_ranks, writer, run_on, input_file, shared_folder):
    check_against_oracle(n_ranks, [f"run.writer={writer}"], run_on, input_file, shared_folder)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("n_ranks", "betas", "blocks", "writer"),
    [
        pytest.param(n, *case, marks=pytest.mark.mpi(min_size=n))
        for n, *case in [
            (1, "[-2.0, 0.0, 1.5, 4.0]", 4, "gather"),
            (2, "[-1.0, 0.0, 1.0]", 8, "mpio"),  # two ladders side by side
            (3, "[0.0, 1.0]", 6, "gather"),  # three
            (4, "[-1.0, 1.0]", 2, "mpio"),  # two ladders of two ranks each
            (4, "[-2.0, 0.0, 1.5, 4.0, 5.0, 6.0]", 2, "gather"),  # and of three rungs a rank
        ]
    ],
)
def test_blocks_equal_the_serial_oracle(
    n_ranks, betas, blocks, writer, run_on, input_file, shared_folder
):
    changes = [f"run.writer={writer}", f"ladder.betas={betas}", f"sampler.blocks={blocks}"]
    changes += ["sampler.walkers=24"]
    check_against_oracle(n_ranks, changes, run_on, input_file, shared_folder)


def check_against_oracle(n_ranks, changes, run_on, input_file, shared_folder):
    """Run on some ranks, and compare with the walkers that the oracle moves one by one."""
    assert run_on(n_ranks, input_file, *(w for c in changes for w in ("--set", c))) == 0
    config = reader.parse(input_file.read_text(), str(input_file), changes)
    model = lattice("cpu")
    energy = model.energy.tolist()
    truth = oracle.run(config, 4, 6, lambda x: sum(energy[v] for v in x) * model.unit)
    with open_run(shared_folder / "run.h5") as run:
        file, rounds = run._file, config.run.rounds
        assert run.rounds == rounds
        np.testing.assert_array_equal(file["samples/x"][:], truth["sample_x"])
        np.testing.assert_array_equal(file["samples/z"][:], truth["sample_z"].astype(np.float32))
        np.testing.assert_array_equal(file["samples/walker"][:], truth["sample_walker"])
        np.testing.assert_array_equal(file["exchange/walker"][:], truth["walker"])
        np.testing.assert_array_equal(file["exchange/attempted"][:], truth["swaps"][:, :, 0])
        np.testing.assert_array_equal(file["exchange/accepted"][:], truth["swaps"][:, :, 1])
        np.testing.assert_array_equal(file["exchange/round_trips"][:], truth["trips"])
        np.testing.assert_array_equal(file["kernel/accepted"][:, :, 0], truth["accepted"])
        last = (rounds - 1) % 2
        np.testing.assert_array_equal(file["state/x"][last], truth["x"][-1])
        z = truth["every_z"]  # [rounds, K, moves, W]
        edges = config.bins.edges
        for r in range(rounds):
            for k in range(z.shape[1]):
                counts = np.histogram(z[r, k], edges)[0]
                np.testing.assert_array_equal(file["histogram/counts"][r, k], counts)
        lanes = file["histogram/lane_counts"][last]  # [K, G, B]
        group_w = lane_groups(config.sampler.walkers)
        for group in range(group_w[-1] + 1):
            counts = np.histogram(z[:, 0, :, group_w == group], edges)[0]
            np.testing.assert_array_equal(lanes[0, group], counts)
        np.testing.assert_allclose(file["histogram/z_sum"][last].sum(), z.sum(), rtol=1e-12)
        assert not file["histogram/outside"][:].any()


@pytest.mark.mpi(min_size=2)
def test_the_toy_is_byte_equal_on_1_2_and_4_ranks(run_on, shared_folder):
    """Floating point matters here: the Toy's forward, not integer energies."""
    from mpi4py import MPI

    small = ["run.rounds=2", "run.burn_in=1", "sampler.walkers=16", "sampler.exchanges=2",
             "sampler.steps=5", "samples.every=5"]  # fmt: skip
    sizes = [n for n in SIZES if n <= MPI.COMM_WORLD.size]
    for n in sizes:
        words = [*small, f"run.output={shared_folder}/toy-{n}.h5"]
        assert run_on(n, "inputs/toy.toml", *(w for s in words for w in ("--set", s))) == 0
    for n in sizes[1:]:
        assert_same(shared_folder / "toy-1.h5", shared_folder / f"toy-{n}.h5")
    with open_run(shared_folder / "toy-1.h5") as run:
        assert run.counts_kb().sum() == 2 * 8 * 16 * 2 * 5


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kernel", ["metropolis", "lm-conditional"])
def test_a_llama_is_byte_equal_on_1_rank_and_on_all(kernel, run_on, shared_folder):
    """Of the Toy's shape, but through Hugging Face's own forward, on kept keys and values."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.rank == 0:
        save_decoder("llama", shared_folder)
    world.barrier()
    small = ["run.rounds=1", "run.burn_in=1", "sampler.walkers=8", "ladder.anchors=false",
             "sampler.steps=5", "samples.every=5", f"model.path={shared_folder}",
             f"kernel.name={kernel}"]  # fmt: skip
    most = max(n for n in SIZES if n <= world.size)  # 8 rungs cannot be shared by 3 ranks
    for n in (1, most):
        words = [*small, f"run.output={shared_folder}/llama-{n}.h5"]
        assert run_on(n, "inputs/toy.toml", *(w for s in words for w in ("--set", s))) == 0
    assert_same(shared_folder / "llama-1.h5", shared_folder / f"llama-{most}.h5")


@pytest.mark.mpi(min_size=2)
def test_a_decoder_that_looks_ahead_in_blocks_is_byte_equal_on_1_2_and_4_ranks(
    run_on, shared_folder
):
    """The cold rung learns, by default. On 4 ranks each block is on another one, and all search."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.rank == 0:
        save_decoder("gpt2", shared_folder)
    world.barrier()
    settings = [
        f"model.path={shared_folder}", "model.length=6", "ladder.betas=[5.0, 10.0]",
        "kernel.name=lm-conditional", "run.rounds=1", "run.burn_in=4", "sampler.blocks=2",
        "sampler.walkers=16", "sampler.steps=2", "sampler.exchanges=2", "samples.every=2",
    ]  # fmt: skip
    sizes = [n for n in SIZES if n <= world.size]
    for n in sizes:
        words = [*settings, f"run.output={shared_folder}/ahead-{n}.h5"]
        assert run_on(n, "inputs/toy.toml", *(w for s in words for w in ("--set", s))) == 0
    for n in sizes[1:]:
        assert_same(shared_folder / "ahead-1.h5", shared_folder / f"ahead-{n}.h5")
    with open_run(shared_folder / "ahead-1.h5") as run:
        hot, cold = (rung.tuned for rung in run.checkpoint(range(2)).rungs)
    assert not hot.any() and cold[2] > 0, "contexts"


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_runs_under_a_law_are_byte_equal_on_1_2_and_4_ranks(temperature, run_on, shared_folder):
    """Also one that goes on later; with the model's own loss as z, and with another law than it."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 0:
        save_decoder("gpt2", shared_folder)
    MPI.COMM_WORLD.barrier()
    settings = [
        f"model.path={shared_folder}", "law.kind=model", f"law.temperature={temperature}",
        "kernel.name=from-law", "ladder.betas=[-1.0, 0.0, 2.0, 4.0]", "run.burn_in=1",
        "sampler.walkers=8", "sampler.steps=3", "sampler.exchanges=3", "samples.every=3",
        "sampler.blocks=2",
    ]  # fmt: skip
    sizes = [n for n in SIZES if n <= MPI.COMM_WORLD.size]
    most = sizes[-1]
    for name, n, rounds in [("in-two", most, 1), *((n, n, 2) for n in sizes), ("in-two", most, 2)]:
        words = [*settings, f"run.rounds={rounds}", f"run.output={shared_folder}/law-{name}.h5"]
        assert run_on(n, "inputs/toy.toml", *(w for s in words for w in ("--set", s))) == 0
    for name in (*sizes[1:], "in-two"):
        assert_same(shared_folder / "law-1.h5", shared_folder / f"law-{name}.h5")


@pytest.mark.mpi(min_size=2)
def test_a_second_direction_is_byte_equal_on_1_2_and_4_ranks(run_on, shared_folder):
    from mpi4py import MPI

    settings = ["sampler.walkers=8", "run.burn_in=1", "ladder.betas=[0.5, 0.0, 0.0, 0.0]"]
    settings += ["ladder.lambdas=[0.0, 0.0, 0.8, 1.6]"]
    sizes = [n for n in SIZES if n <= MPI.COMM_WORLD.size]
    whole = [(n, n, 2) for n in sizes]
    for name, n, rounds in [("in-two", sizes[-1], 1), *whole, ("in-two", 2, 2)]:
        words = [*settings, f"run.rounds={rounds}", f"run.output={shared_folder}/two-{name}.h5"]
        options = [w for s in words for w in ("--set", s)]
        assert run_on(n, "inputs/toy-distinct.toml", *options) == 0
    for name in (*sizes[1:], "in-two"):
        assert_same(shared_folder / "two-1.h5", shared_folder / f"two-{name}.h5")


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("make", ["make_compiled", "make", "make_whole"])
def test_rungs_that_move_as_one_batch_are_byte_equal_on_1_2_and_4_ranks(
    make, run_on, shared_folder, input_file
):
    """Of 5 x 5 spins, whose z is rounded; also a run that goes on later."""
    from mpi4py import MPI

    settings = [
        f"model.factory=ising:{make}", "model.options.side=5", "sampler.walkers=16",
        "sampler.blocks=2", "sampler.steps=30", "bins.lower=-2.125", "ladder.anchors=true",
    ]  # fmt: skip
    sizes = [n for n in SIZES if n <= MPI.COMM_WORLD.size]
    most = sizes[-1]
    for name, n, rounds in [("in-two", most, 1), *((n, n, 2) for n in sizes), ("in-two", 2, 2)]:
        words = [*settings, f"run.rounds={rounds}", f"run.output={shared_folder}/ising-{name}.h5"]
        assert run_on(n, input_file, *(w for s in words for w in ("--set", s))) == 0
    for name in (*sizes[1:], "in-two"):
        assert_same(shared_folder / "ising-1.h5", shared_folder / f"ising-{name}.h5")


@pytest.mark.mpi(min_size=2)
def test_annealed_blocks_are_byte_equal_on_1_2_and_4_ranks(run_on, shared_folder, input_file):
    """Each rank takes blocks of populations through the whole ladder."""
    from mpi4py import MPI

    settings = [
        "sampler.method=annealed", "sampler.blocks=4", "sampler.walkers=16", "samples.every=1",
        "model.factory=markov_model:markov", "ladder.betas=[5.0, 6.0, 7.0]", "bins.upper=8.125",
        "kernel.name=lm-conditional", "run.rounds=2", "sampler.steps=2",
    ]  # fmt: skip
    sizes = [n for n in SIZES if n <= MPI.COMM_WORLD.size]
    for n in sizes:
        words = [*settings, f"run.output={shared_folder}/annealed-{n}.h5"]
        assert run_on(n, input_file, *(w for s in words for w in ("--set", s))) == 0
    for n in sizes[1:]:
        assert_same(shared_folder / "annealed-1.h5", shared_folder / f"annealed-{n}.h5")


@pytest.mark.mpi(min_size=2)
def test_more_rounds_later_are_the_same_as_at_once(run_on, input_file, shared_folder):
    assert run_on(2, input_file, "--set", "run.rounds=2") == 0
    assert run_on(1, input_file) == 0
    assert run_on(2, input_file, "--set", f"run.output={shared_folder}/once.h5") == 0
    assert_same(shared_folder / "run.h5", shared_folder / "once.h5")


@pytest.mark.mpi(min_size=2)
def test_another_seed_gives_other_samples(run_on, input_file, shared_folder):
    """The comparison of bytes can fail."""
    other = shared_folder / "other.h5"
    assert run_on(2, input_file) == 0
    assert run_on(2, input_file, "--set", "run.seed=8", "--set", f"run.output={other}") == 0
    with pytest.raises(AssertionError, match="samples/x"):
        assert_same(shared_folder / "run.h5", other)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("make", ["make", "make_compiled"])
def test_sums_of_changes_are_byte_equal_on_1_2_and_4_ranks(make, run_on, input_file, shared_folder):
    """z is rounded, and summed between exchanges only.

    All ranks run first: numba compiles the change of z once in each, on all at the same time. That
    takes seconds, so only two do.
    """
    from mpi4py import MPI

    words = [f"model.factory=ising:{make}", "model.options={side = 10}", "bins.lower=-2.125",
             "bins.upper=2.125", "ladder.betas=[0.0, 10.0, 25.0, 60.0]"]  # fmt: skip
    most = min(MPI.COMM_WORLD.size, 2 if make == "make_compiled" else 4)
    sizes = [n for n in SIZES if n <= most]
    for n in reversed(sizes):
        changes = [*words, f"run.output={shared_folder}/on-{n}.h5"]
        assert run_on(n, input_file, *(w for c in changes for w in ("--set", c))) == 0
    for n in sizes[1:]:
        assert_same(shared_folder / f"on-{sizes[0]}.h5", shared_folder / f"on-{n}.h5")
