"""The figure of certified bounds: what is drawn, and with what words."""

import numpy as np
import pytest
from normalized_chain import NormalizedChain

from omniinput_hpc.estimators.density.certified import KnownBelow, certify
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.plots.certified import certified_figure


@pytest.mark.slow
def test_bounds_the_density_and_what_a_census_knows_are_drawn():
    model = NormalizedChain(0, sharpness=1.5, spread=0.5)
    run = model.ancestral_run((0.0, 0.5, 1.0), 1)
    last = int(np.searchsorted(np.cumsum(model.count_l), 1000))
    z_i = np.repeat(model.z_l[: last + 1], model.count_l[: last + 1].astype(int))
    known = KnownBelow(float(model.z_l[last]), z_i)
    z_t = np.concatenate([[known.complete_below], model.thresholds(6)[1:]])
    found = certify(run, model.n_predicted, known, z_t)
    figure = certified_figure(found, density_of_run(run), "output z")
    top, bottom = figure.axes
    said = {text.get_text() for text in top.get_legend().get_texts()}
    assert said == {"certified 95% bounds", "all known from a census", "from the density"}
    (line,) = [found for found in top.lines if found.get_label() == "from the density"]
    assert line.get_ydata()[-1] == pytest.approx(24 * np.log10(8), abs=0.1)
    assert bottom.get_xlabel() == "output z" and bottom.get_ylim()[0] == 0.0
