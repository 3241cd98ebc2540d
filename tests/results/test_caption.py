"""A figure says of which runs it is, and what is wrong with them."""

from types import SimpleNamespace

import numpy as np
from configs import config_with

from omniinput_hpc.models.table import z_label
from omniinput_hpc.plots import style
from omniinput_hpc.results.caption import caption_of
from omniinput_hpc.results.curve import about_curve


class Run:
    """What a caption asks of a run."""

    path, n_sites, n_values, rounds, rounds_planned = "runs/a.h5", 25, 100, 3, 8

    def __init__(self, **model):
        self.config = config_with(model={"kind": "causal-lm", "path": "x/english", **model})


def verdict(converged):
    return SimpleNamespace(verdict=SimpleNamespace(converged=converged), trusted_below=-np.inf)


def test_a_figure_says_of_what_it_is():
    caption = caption_of([Run(), Run()], [verdict(True)], about_curve("low", "a:b"))
    first, second, about = caption.title.split("\n")
    assert first == second
    assert first == ("a: causal-lm english, 25 sites of 100 values (10^50.0 inputs), 3 of 8 rounds")
    assert about == "inputs are accepted from the low end of z, scores by a:b"
    assert caption.converged and caption.remark == ""


def test_many_runs_of_one_model_share_a_line():
    many = [Run() for _ in range(5)]
    assert caption_of(many[:3]).title.count("\n") == 2
    assert caption_of(many).title == (
        "5 runs, a to a: causal-lm english, 25 sites of 100 values (10^50.0 inputs), "
        "15 of 40 rounds in all"
    )
    many[1].n_sites = 24
    assert caption_of(many).title.count("\n") == 4


def test_noise_and_what_has_not_converged_are_written_into_the_figure(tmp_path):
    noisy = Run(noise=True)
    assert z_label(noisy.config).endswith(", with noise")
    captions = {
        "plain": caption_of([Run()], [verdict(True)]),
        "noisy": caption_of([noisy], [verdict(True)]),
        "wrong": caption_of([Run()], [verdict(True), verdict(False)]),
    }
    assert captions["noisy"].remark.startswith("model.noise = true: the output is not a function")
    written = {}
    for name, caption in captions.items():
        figure, _ = style.panels([2.0])
        style.save(figure, tmp_path / f"{name}.png", caption)
        assert figure.get_suptitle() == caption.title and figure.get_supxlabel() == caption.remark
        across = [text.get_text() for text in figure.texts]
        assert ("NOT CONVERGED" in across) == (name == "wrong")
        written[name] = (tmp_path / f"{name}.png").read_bytes()
    assert len(set(written.values())) == 3
