"""A rung takes back all that burn-in tuned, of every part of its kernel."""

import numpy as np
import pytest
from run_tools import assert_same

from omniinput_hpc.cli.run import main
from omniinput_hpc.kernels.discrete_langevin import DiscreteLangevin
from omniinput_hpc.runfile.reader import open_run

MIXTURE = """
[run]
output = "{output}"
seed = 5
rounds = 4
burn_in = 3
[model]
kind = "python"
factory = "toy_models:coupled"
[sampler]
walkers = 8
steps = 6
exchanges = 2
[ladder]
betas = [0.0, 1.0, 2.0]
[kernel]
name = "mixture"
[[kernel.parts]]
name = "metropolis"
[[kernel.parts]]
name = "discrete-langevin"
step_size = 0.5
[bins]
lower = -40.0
upper = 40.0
width = 0.5
[samples]
every = 4
"""


LANGEVIN = """
[kernel]
name = "discrete-langevin"
step_size = 0.5
[bins]"""


def sample(folder, name, *rounds):
    """Run to each number of rounds in turn; return the run file."""
    toml, path = folder / f"{name}.toml", folder / f"{name}.h5"
    toml.write_text(MIXTURE.format(output=path))
    for n in rounds:
        assert main([str(toml), "--set", f"run.rounds={n}"]) == 0
    return path


def test_a_resumed_mixture_keeps_its_tuned_step_sizes(tmp_path):
    path = sample(tmp_path, "resumed", 1, 2, 4)
    with open_run(path) as run:
        tuned = [rung.tuned for rung in run.checkpoint(range(3)).rungs]
    assert any(t[0] != 0.5 for t in tuned), "nothing was tuned"
    assert_same(path, sample(tmp_path, "whole", 4))


def test_a_checkpoint_that_loses_what_was_tuned_is_noticed(tmp_path, monkeypatch):
    from omniinput_hpc.kernels.mixture import Mixture

    lost = property(Mixture.tuned.fget, lambda self, values: None)
    monkeypatch.setattr(Mixture, "tuned", lost)
    path = sample(tmp_path, "resumed", 1, 4)
    with pytest.raises(AssertionError, match="differ in"):
        assert_same(path, sample(tmp_path, "whole", 4))


def test_what_a_mixture_has_tuned_cannot_be_written_into():
    from toy_models import coupled

    from omniinput_hpc.config.kernels import DiscreteLangevin
    from omniinput_hpc.kernels.discrete_langevin import DiscreteLangevin as Kernel
    from omniinput_hpc.kernels.mixture import Mixture

    options = DiscreteLangevin(name="discrete-langevin")
    mixture = Mixture([Kernel(options, coupled(device="cpu"), 2)], [1.0], ("x",))
    with pytest.raises(ValueError, match="read-only"):
        mixture.tuned[:] = np.ones(2)


@pytest.mark.parametrize("steps", [1, 6])
def test_exact_draws_of_anchors_do_not_tune_the_kernel(tmp_path, monkeypatch, steps):
    """At beta = 0 every move is an exact draw, at beta = m = 2 a segment's last one is."""
    told, adapt = [], DiscreteLangevin.adapt

    def noted(self, attempted_p, accepted_p):
        assert (accepted_p <= attempted_p).all()
        told.append(int(attempted_p[0]))
        adapt(self, attempted_p, accepted_p)

    monkeypatch.setattr(DiscreteLangevin, "adapt", noted)
    head, _, rest = MIXTURE.partition("[kernel]")
    text = head + LANGEVIN + rest.partition("[bins]")[2]
    path = tmp_path / "anchored.h5"
    toml = path.with_suffix(".toml")
    toml.write_text(text.format(output=path).replace("coupled", "normalized"))
    assert main([str(toml), "--set", f"sampler.steps={steps}", "--set", "samples.every=1"]) == 0
    assert told == 6 * [0, 8 * steps, 8 * (steps - 1)]  # rungs of 8 walkers, twice a round
    with open_run(path) as run:
        tuned = [rung.tuned for rung in run.checkpoint(range(3)).rungs]
    np.testing.assert_array_equal(tuned[0], [0.5, 0.0])
    assert tuned[1][1] == 6
    assert tuned[2][1] == (6 if steps > 1 else 0)
