"""A rank's part of a run: its ensembles, the file's first values, its probes, a longer file."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from run_tools import LATTICE
from runs_in_progress import FINGERPRINT, WORLD, begin, config_of, identity_of
from toy_models import LatticeModel

from omniinput_hpc.cli.common import to_toml
from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import build, first_look, loop, shapes
from omniinput_hpc.sampling.built import initial_ensembles
from omniinput_hpc.sampling.restart import Existing, find_existing
from omniinput_hpc.tempering.ensembles import Canonical, Gaussian, Tabulated

GAUSSIAN = ("ladder.kappa=[0.0, 2.0, 0.0, 3.0]", "ladder.z0=[0.0, 1.0, 0.0, 1.5]")
FLAT = (
    "sampler.method=wang-landau", "run.burn_in=4", "ladder.betas=[0.0]", "wang_landau.windows=3",
)  # fmt: skip


def test_ensembles_at_the_beginning(tmp_path):
    canonical = initial_ensembles(config_of(tmp_path))
    assert canonical == [Canonical(beta) for beta in (-2.0, 0.0, 1.5, 4.0)]
    mixed = initial_ensembles(config_of(tmp_path, *GAUSSIAN))
    assert mixed[1] == Gaussian(0.0, 2.0, 1.0) and mixed[2] == Canonical(1.5)
    *flat, last = initial_ensembles(config_of(tmp_path, *FLAT))
    assert last == Canonical(0.0) and all(isinstance(e, Tabulated) for e in flat)
    assert flat[0].window[0] == 0 and flat[-1].window[1] == 19
    assert not any(e.table.any() for e in flat)


@pytest.mark.parametrize("changes", [(), GAUSSIAN, FLAT])
def test_a_new_file_says_what_the_rungs_are(tmp_path, changes):
    config = config_of(tmp_path, *changes)
    run = begin(config)
    run.writer.close()
    ensembles = initial_ensembles(config)
    with open_run(tmp_path / "run.h5") as made:
        np.testing.assert_array_equal(made.beta_k, config.beta_k)
        for k, ensemble in enumerate(ensembles):
            assert made.kappa_k()[k] == getattr(ensemble, "kappa", 0.0)
            assert made.z0_k()[k] == getattr(ensemble, "z0", 0.0)
        assert input_file.parse(made.config_toml, "stored") == config
        assert (made.fingerprint, made.probe_z.shape) == (FINGERPRINT, (first_look.N_PROBES,))
    assert run.next_round == -config.run.burn_in and run.held == range(4)


@pytest.mark.parametrize("anchors", ["true", "false"])
def test_tuning_keeps_the_models_own_beta(tmp_path, anchors):
    """It is 2 here; the rung stays there also if it is not drawn."""
    keys = [f"ladder.anchors={anchors}", "ladder.betas=[0.0, 0.1, 2.0, 3.0]", "ladder.tune=true"]
    keys += ["model.factory=toy_models:normalized", "bins.upper=12.125", "run.rounds=1"]
    run = begin(config_of(tmp_path, *keys))
    loop.sample(run)
    run.writer.close()
    beta_k = [rung.ensemble.beta for rung in run.rungs]
    assert beta_k[1] != 0.1 and 2.0 in beta_k


def test_probes_never_change(tmp_path):
    probes = [
        build.build(WORLD, config_of(tmp_path, *changes), None).probe()
        for changes in ([], ["run.seed=99"], ["sampler.walkers=16"], ["ladder.betas=[0.0]"])
    ]
    assert len(probes[0]) == first_look.N_PROBES and len(set(probes[0])) > 1
    assert probes[0] == probes[1] == probes[3]
    other = build.build(WORLD, config_of(tmp_path, "model.options.unit=0.5"), None).probe()
    assert other == [2 * z for z in probes[0]]


def test_a_longer_run_gets_a_longer_file(tmp_path):
    config = config_of(tmp_path, "run.rounds=2", "run.burn_in=1")
    run = begin(config)
    loop.sample(run)
    run.writer.close()
    longer = config_of(tmp_path, "run.rounds=4", "run.burn_in=1")
    found = find_existing(longer, FINGERPRINT, "auto")
    beats = []
    built = build.build(WORLD, longer, None)
    header = {"config": to_toml(longer)}
    build.prepare_file(built, identity_of(built), found, header, lambda: beats.append(1))
    assert beats
    with open_run(tmp_path / "run.h5") as grown:
        assert (grown.rounds, grown.rounds_planned) == (2, 4)
    assert begin(longer, replace(found, rounds_planned=4)).next_round == 2


def test_a_file_that_cannot_be_made_is_a_plain_message(tmp_path):
    (tmp_path / "file").touch()
    config = input_file.parse(LATTICE.format(output=tmp_path / "file/run.h5"), "lattice.toml")
    built = build.build(WORLD, config, None)
    with pytest.raises(UserError, match=r"run.output = .* cannot be made: "):
        build.prepare_file(built, identity_of(built), Existing(), {}, lambda: None)


class BuildsMore(LatticeModel):
    """A model that builds a decoder at its first use, for which there is no memory."""

    @property
    def kv_cache(self):
        raise torch.OutOfMemoryError("no memory")

    def output(self, x):
        return super().output(x) if self.kv_cache else None


def test_a_lack_of_memory_at_the_models_first_use_is_told(tmp_path):
    config = config_of(tmp_path)
    model = BuildsMore(6, 4, 0.25, "cpu")
    geometry = shapes.geometry_of(config, model.n_values, model.n_sites)
    with pytest.raises(UserError, match="a batch of 8 inputs does not fit on cpu"):
        build.make_rungs(config, geometry, model, "cpu", [0])
