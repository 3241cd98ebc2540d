"""Runs of each output on models that can be enumerated, from the command to the density."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from language_folders import save_classifier, save_decoder, save_first_layer, save_tokenizer
from output_cases import all_inputs, built
from run_tools import ROOT, assert_same
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from omniinput_hpc.cli import run as launch
from omniinput_hpc.cli import verify
from omniinput_hpc.cli.omniinput import main as omniinput
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.models.table import side_of, z_label
from omniinput_hpc.runfile.reader import open_run

INPUT = """
[run]
output = "{output}"
seed = 5
rounds = 24
burn_in = 4
[model]
kind = "causal-lm"
path = "{folder}"
length = {length}
{more}
[output]
{table}
[sampler]
walkers = 16
steps = 5
exchanges = 2
[ladder]
betas = {betas}
[kernel]
name = "{kernel}"
[bins]
lower = {lower}
upper = {upper}
width = {width}
[samples]
every = 5
"""
MODELS = ROOT / "inputs/models"
FEW = ["<end>", "a", "b", "c", "d", "e", "<pad>"]
"""Tokens of a small decoder; 29 values have no others."""
OWN = """
def count(x, texts):
    import numpy as np
    return np.array([text.count("a") - 0.5 * text.count("ab") for text in texts], dtype=np.float32)
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return decoders by name, with a judge of the small one's texts."""
    names = ("toy", "toy-worse", "small", "judge")
    toy, worse, small, judge = (tmp_path_factory.mktemp(name) for name in names)
    for folder, of in ((toy, "toy"), (worse, "toy-worse")):
        save_first_layer(MODELS / of, folder)
    save_decoder("llama", small, scale=6.0)
    save_tokenizer(small, FEW)
    save_classifier(judge)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcde", *(f"##{c}" for c in "abcde")]
    (judge / "vocab.txt").write_text("\n".join(words) + "\n")
    return {"toy": toy, "worse": worse, "small": small, "judge": judge}


@torch.no_grad()
def logits_of(folder, tokens):
    """Return transformers' own ln P, float64 [n, T, V], of the tokens after each position."""
    lm = AutoModelForCausalLM.from_pretrained(folder).eval()
    return lm(input_ids=tokens).logits.double().log_softmax(-1)


def next_of(target):
    def z_of(tokens, folders):
        tokens = torch.cat([tokens, torch.tensor([[3]]).expand(len(tokens), 1)], 1)
        return -logits_of(folders["toy"], tokens)[:, -1, target].exp().sum(-1).log()

    return z_of


def text_of(ids):
    def z_of(tokens, folders):
        text = torch.tensor([ids]).expand(len(tokens), -1)
        log_p = logits_of(folders["small"], torch.cat([tokens, text], 1))
        return -log_p[:, -len(ids) - 1 : -1].gather(2, text[..., None])[..., 0].mean(1)

    return z_of


def loss(folder, tokens):
    log_p = logits_of(folder, tokens)[:, :-1]
    return -log_p.gather(2, tokens[:, 1:, None])[..., 0].mean(1)


def difference(one, other):
    return lambda tokens, folders: loss(folders[one], tokens) - loss(folders[other], tokens)


def judged(number):
    @torch.no_grad()
    def z_of(tokens, folders):
        words = ["".join(FEW[token] for token in row) for row in tokens.tolist()]
        read = AutoTokenizer.from_pretrained(folders["judge"])
        lm = AutoModelForSequenceClassification.from_pretrained(folders["judge"]).eval()
        given = [read(word, return_tensors="pt") for word in words]
        return torch.stack([lm(**one).logits[0, number] for one in given])

    return z_of


def counted(pair):
    def z_of(tokens, folders):
        words = ["".join(FEW[token] for token in row) for row in tokens.tolist()]
        return torch.tensor([word.count("a") - 0.5 * word.count(pair) for word in words])

    return z_of


GRADIENT = "gibbs-with-gradients"
TOKENS = "[space]\nallowed = 'tokenizer'"
CASES = {
    "next": (
        "toy", 'name = "next"\ntargets = [4, 7]\nafter = [3]', ("metropolis", GRADIENT),
        [0.0, 0.7, 1.5], (0.0, 12.0, 0.25), next_of([4, 7]), next_of([4]),
    ),
    "text": (
        "small", 'name = "text"\ntext = "ab"', ("metropolis", GRADIENT),
        [0.0, 0.7, 1.5], (0.0, 20.0, 0.25), text_of([1, 2]), text_of([2, 1]),
    ),
    "difference": (
        "toy", 'name = "difference"\nother = { kind = "causal-lm", path = "{worse}" }',
        ("metropolis", GRADIENT), [-3.0, 0.0, 3.0], (-2.0, 2.0, 0.05),
        difference("toy", "worse"), difference("worse", "toy"),
    ),
    "classifier": (
        "small", 'name = "classifier"\nclass = 1\npath = "{judge}"', ("metropolis",),
        [0.0, 5.0], (-3.0, 3.0, 0.05), judged(1), judged(0),
    ),
    "python": (
        "small", 'name = "python"\nfunction = "my_counts:count"', ("metropolis",),
        [0.0, 1.0], (-2.25, 4.75, 0.5), counted("ab"), counted("bb"),
    ),
}  # fmt: skip


def start(folders, place, name, *keys, kernel="metropolis", file="run", code=0):
    """Run one of `CASES`; return the run file."""
    which, table, _, betas, (lower, upper, width), *_ = CASES[name]
    path = place / f"{file}.h5"
    length, more = (3, "") if which == "toy" else (4, TOKENS)
    for folder in ("judge", "worse"):
        table = table.replace(f"{{{folder}}}", str(folders[folder]))
    text = INPUT.format(
        output=path, folder=folders[which], length=length, more=more, table=table, betas=betas,
        kernel=kernel, lower=lower, upper=upper, width=width,
    )  # fmt: skip
    (place / f"{file}.toml").write_text(text)
    words = [word for key in keys for word in ("--set", key) if not key.startswith("-")]
    flags = [key for key in keys if key.startswith("-")]
    assert launch.main([str(place / f"{file}.toml"), *words, *flags]) == code
    return path


def agrees(density, z_n, edges):
    """Return whether a density is that of all inputs, whose outputs are z [n]."""
    with np.errstate(divide="ignore"):
        inside = bin_of(z_n.numpy(), edges)
        expected_b = np.log(np.bincount(inside[inside < len(edges) - 1], minlength=len(edges) - 1))
    often = expected_b >= np.log(5)  # a short run may not meet rarer ones often enough
    error_b = np.hypot(density.log_g_error_b[often], 0.02)
    with np.errstate(invalid="ignore"):
        apart_b = np.abs(density.log_g_b - expected_b)[often]
    return often.sum() > 3 and (error_b < 1.0).all() and bool((apart_b < 4.5 * error_b).all())


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Let functions be imported from the test's own folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("my_counts.py").write_text(OWN)
    return tmp_path


FAST = [("next", "metropolis"), ("python", "metropolis")]
MORE = [(n, k) for n, case in CASES.items() for k in case[2] if (n, k) not in FAST]
MORE = [pytest.param(*one, marks=pytest.mark.slow) for one in MORE]


@pytest.mark.parametrize("name, kernel", FAST + MORE)
def test_a_run_counts_all_inputs_by_their_z(folders, own, name, kernel):
    path = start(folders, own, name, kernel=kernel)
    *_, z_of, other_z_of = CASES[name]
    with open_run(path) as run:
        density, edges, config = density_of_run(run.data), run.edges, run.config
        n_values, n_sites = run.n_values, run.n_sites
    model = type("Shape", (), {"n_values": n_values, "n_sites": n_sites})
    tokens = all_inputs(model)  # the small decoder's tokens are values 0 to 6
    assert density.absolute and config.output.name == name
    assert agrees(density, z_of(tokens, folders), edges)
    assert not agrees(density, other_z_of(tokens, folders), edges)
    assert z_label(config).startswith("output z, ") and "mean NLL (nats" not in z_label(config)
    assert side_of(config).assumed == (name not in ("next", "text"))


def test_a_run_goes_on_is_verified_and_refused_with_another_output(folders, own, capsys):
    path = start(folders, own, "next", "run.rounds=2")
    whole = start(folders, own, "next", "run.rounds=4", file="whole")
    start(folders, own, "next", "run.rounds=4")
    assert_same(path, whole)
    assert verify.verify_file(path, 50)[1] == []
    for change in ("output.targets=[4]", 'output.aggregate="max"', "output.after=[2]"):
        start(folders, own, "next", "run.rounds=5", change, code=2)
        assert f"{change.split('=')[0]} is " in capsys.readouterr().err
    with open_run(path) as run:
        assert run.rounds == 4 and "output next: " in run.fingerprint


@pytest.mark.slow
def test_the_other_model_of_a_difference_may_be_moved(folders, own, capsys):
    moved = own / "elsewhere"
    shutil.copytree(folders["worse"], moved)
    path = start(folders, own, "difference", "run.rounds=1")
    start(folders, own, "difference", "run.rounds=2", f"output.other.path={moved}")
    with open_run(path) as run:
        assert run.rounds == 2
    start(folders, own, "difference", "run.rounds=3", f"output.other.path={folders['toy']}", code=2)
    assert "the model's files or options have changed" in capsys.readouterr().err


def test_a_function_that_has_changed_makes_another_run(folders, own, capsys):
    start(folders, own, "python", "run.rounds=2")
    start(folders, own, "python", "run.rounds=3", "--check")
    Path("my_counts.py").write_text(OWN + "\n")
    start(folders, own, "python", "run.rounds=3", code=2)
    assert "files or options have changed" in capsys.readouterr().err


@pytest.mark.slow
def test_check_shows_what_z_is_and_writes_no_run(folders, own, capsys):
    for name in CASES:
        path = start(folders, own, name, "--check")
        assert not path.exists()
        assert f"output    {LABELS[name]}" in capsys.readouterr().err, name


LABELS = {
    "next": "output z, \N{MINUS SIGN}ln P(4, 7) of the next token (nats)",
    "text": "output z, mean NLL of 'ab' (nats per token)",
    "difference": "output z, NLL \N{MINUS SIGN} NLL of toy-worse",
    "classifier": "output z, the judge's logit of class 1 (nats)",
    "python": "output z, my_counts:count",
}


@pytest.mark.slow
def test_runs_of_different_outputs_have_the_same_inputs(folders, own, capsys):
    """Two outputs of one model may be compared, and a run may be scored by another output."""
    one = start(folders, own, "next")
    start(folders, own, "difference", "run.rounds=2", file="other")
    assert omniinput(["rescore", str(one), str(own / "other.toml")]) == 0
    two = start(folders, own, "next", "output.targets=[4]", file="two")
    rule = ["--rule", "small_models:everything"]
    assert omniinput(["compare", str(one), str(two), *rule]) == 0, capsys.readouterr()


def test_enumerate_counts_every_input(folders, own):
    start(folders, own, "difference", "--check")
    words = [str(own / "run.toml"), "--output", str(own / "exact.csv")]
    assert omniinput(["enumerate", *words]) == 0
    counted_b = np.loadtxt(own / "exact.csv", delimiter=",", skiprows=1)
    *_, (lower, _, width), z_of, _ = CASES["difference"]
    tokens = all_inputs(type("Shape", (), {"n_values": 10, "n_sites": 3}))
    inside = np.floor((z_of(tokens, folders).numpy() - lower) / width).astype(int)
    bins, counts = np.unique(inside, return_counts=True)
    assert counted_b[:, -1].sum() == 1000 and len(bins) > 5
    np.testing.assert_allclose(counted_b[:, 0], lower + width * bins, atol=1e-9)
    assert np.abs(counted_b[:, -1] - counts).max() <= 2  # rounding at edges


@pytest.mark.slow
def test_kernels_that_need_rows_of_z_refuse(folders, own, capsys):
    start(folders, own, "next", 'kernel.name="lm-conditional"', code=2)
    assert "conditional_logits" in capsys.readouterr().err
    keys = ('sampler.method="ancestral"', "samples.every=1")
    start(folders, own, "next", *keys, code=2)
    assert not list(own.glob("*.h5"))
    toy = {"path": str(folders["toy"]), "length": 3}
    assert built(toy, {"name": "next", "targets": [1]}).n_values == 10
