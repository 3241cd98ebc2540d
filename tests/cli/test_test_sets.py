"""The traditional evaluation: its scores by hand, its files, its mistakes."""

import json

import numpy as np
import pytest
import torch
from idx_files import write_mnist
from run_tools import ROOT
from safetensors.torch import save_file

from omniinput_hpc import models
from omniinput_hpc.cli import test_sets
from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images.data_sets import read_digits, split_digits
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.tables import read_test_sets

INPUT = str(ROOT / "inputs/digits-mlp.toml")


def test_scores_by_hand():
    positive, negative = np.array([4.0, 3.0, 1.0]), np.array([2.0, 0.0])
    aupr, average, auroc, fpr95 = test_sets.scores(positive, negative)
    assert auroc == pytest.approx(5 / 6)  # of 6 pairs one is the wrong way round
    assert fpr95 == pytest.approx(0.5)  # all three positives are found at z >= 1
    # precision 1, 1, 2/3, 3/4 at recall 1/3, 2/3, 2/3, 1, joined by straight lines
    assert aupr == pytest.approx(2 / 3 + (2 / 3 + 3 / 4) / 2 / 3)
    # by steps: each third of the recall at the precision with which it is reached
    assert average == pytest.approx((1 + 1 + 3 / 4) / 3)
    assert test_sets.scores(negative, positive)[2] == pytest.approx(1 / 6)
    many = np.arange(100.0)
    assert test_sets.scores(many, np.array([4.5, 5.5, -1.0, -2.0]))[3] == pytest.approx(0.25)


@pytest.mark.slow
def test_the_digits_family_on_its_own_test_set(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = tmp_path / "z.csv"
    arguments = [INPUT, "--positives", "digits:1", "--negatives", "digits:0", "--negatives",
                 "digits:2,3,4,5,6,7,8,9", "--output", str(path)]  # fmt: skip
    assert test_sets.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = lines[1 + next(n for n, line in enumerate(lines) if line.startswith("negatives")) :]
    auroc = {line.split()[0]: float(line.split()[4]) for line in rows[:2]}
    assert auroc["digits:0"] > 99
    assert auroc["digits:2,3,4,5,6,7,8,9"] < auroc["digits:0"]
    rows = path.read_text().splitlines()
    assert rows[0] == "set,role,z" and rows[1].startswith("digits:1,positive,")
    assert len(rows) == 1 + len(test_sets.read_set("digits"))


def test_no_image_of_the_test_set_was_trained_on():
    trained, tested = split_digits(read_digits(0, 1))
    found = test_sets.read_set("digits:0,1")
    assert not set(map(bytes, trained.x)) & set(map(bytes, found.x))
    assert sorted(map(bytes, found.x)) == sorted(map(bytes, tested.x))
    threes = test_sets.read_set("digits:3,7").only(0)
    assert set(map(bytes, threes.x)) < set(map(bytes, read_digits(3).x))


@pytest.mark.parametrize(
    ("positives", "said"),
    [
        ("digit:1", "no such set"),
        ("digits:11", "no images of class 11"),
        ("digits:one", "expected classes such as"),
        ("mnist", "expected mnist:FOLDER"),
        ("mnist:/nowhere", "fetch it"),
        ("cifar10:/nowhere:1", "fetch cifar-10-binary.tar.gz"),
    ],
)
def test_mistakes_are_bad_input(positives, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    arguments = [INPUT, "--positives", positives, "--negatives", "digits:0"]
    assert test_sets.main([*arguments, "--output", str(tmp_path / "z.csv")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "z.csv").exists()


def test_sets_of_images_are_not_for_language_models(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    arguments = ["inputs/toy.toml", "--positives", "digits:1", "--negatives", "digits:0"]
    assert test_sets.main(arguments) == 2
    assert 'model.kind = "causal-lm"; give a file of your own' in capsys.readouterr().err


def test_the_table_is_written_whole_or_a_plain_message_says_why_not(tmp_path):
    name = 'mnist:a "folder", b'
    found = [
        test_sets.Outputs(name, "positive", np.array([1.5, 1 / 3]), np.zeros((2, 8))),
        test_sets.Outputs("digits:0", "negative", np.array([-2.0]), np.zeros((1, 8))),
    ]
    path = tmp_path / "new" / "z.csv"
    record = Record(tmp_path / "toy.h5", "test-sets", "", {})
    test_sets.write_outputs(path, found, record)
    assert [p.name for p in path.parent.iterdir()] == ["z.csv"]
    back = read_test_sets(path)
    assert list(back) == [name, "digits:0"]
    np.testing.assert_allclose(back[name], found[0].z, rtol=1e-6)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/z.csv cannot be written"):
        test_sets.write_outputs(
            tmp_path / "file" / "z.csv", found, Record(tmp_path / "toy.h5", "test-sets", "", {})
        )


def test_labelled_values_of_ones_own_on_the_low_side(tmp_path, capsys, monkeypatch):
    """The Toy's valid inputs have low z: the AUPR of right labels is that of -z, by hand."""
    monkeypatch.chdir(ROOT)
    rng = np.random.default_rng(3)
    x = rng.integers(0, 8, size=(40, 8))
    label = rng.integers(0, 2, size=40)
    lines = [
        json.dumps({"values": row.tolist(), "label": int(one)})
        for row, one in zip(x, label, strict=True)
    ]
    file, path = tmp_path / "mine.jsonl", tmp_path / "z.csv"
    file.write_text("\n".join(lines))
    assert test_sets.main(["inputs/toy.toml", "--data", str(file), "--output", str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    config = input_file.load(ROOT / "inputs/toy.toml", [])
    z = models.build(config, "cpu").output(torch.from_numpy(x)).numpy().astype(float)
    numbers = [100 * s for s in test_sets.scores(-z[label == 1], -z[label == 0])]
    (row,) = [line for line in out if line.startswith(str(file)) and "%" not in line]
    assert row.split()[1:] == [str((label == 0).sum()), *(f"{s:.2f}" for s in numbers)]
    assert f"positives: {label.sum()}, found at low z" in out
    back = read_test_sets(path)
    assert sorted(back) == [f"{file} (negative)", f"{file} (positive)"]
    for name, its in zip(sorted(back), (z[label == 0], z[label == 1]), strict=True):
        np.testing.assert_allclose(np.sort(back[name]), np.sort(its), rtol=1e-6)


def test_labels_that_contradict_the_role_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    row = '{"values": [1, 2, 3, 4, 5, 6, 7, 0], "label": %d}\n'
    for name, labels in {"good": (1, 1), "bad": (0, 0), "mixed": (1, 0)}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(row % one for one in labels))
    good, bad, mixed = (str(tmp_path / f"{name}.jsonl") for name in ("good", "bad", "mixed"))
    path = tmp_path / "z.csv"
    for words in ([mixed, "--negatives", bad], [good, "--negatives", mixed]):
        words = ["inputs/toy.toml", "--positives", *words, "--output", str(path)]
        assert test_sets.main(words) == 2
        assert f"{mixed}: some of its labels contradict" in capsys.readouterr().err
    words = ["inputs/toy.toml", "--positives", good, "--negatives", bad, "--output", str(path)]
    assert test_sets.main(words) == 0


def test_one_folder_is_not_two_sets(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    write_mnist(tmp_path, 30)
    (tmp_path / "fashion").symlink_to(tmp_path)
    words = ["inputs/mnist-cpu/cnn.toml", "--positives", f"mnist:{tmp_path}:1", "--negatives"]
    for other in (f"fashion:{tmp_path}/fashion", f"kuzushiji:{tmp_path}:0"):
        assert test_sets.main([*words, other, "--output", str(tmp_path / "z.csv")]) == 2
        assert "are the same files" in capsys.readouterr().err


def test_the_share_that_a_rule_calls_right(tmp_path, capsys, monkeypatch):
    """Seven of ten inputs are valid; the interval is Clopper and Pearson's."""
    monkeypatch.chdir(ROOT)
    valid, not_valid = [7, 7, 7, 7, 2, 0, 0, 0], [7, 7, 7, 7, 1, 0, 0, 0]
    rows = [valid] * 7 + [not_valid] * 3
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(json.dumps({"values": row}) for row in rows))
    rule = ["--rule", "omniinput_hpc.zoo.toy:is_valid"]
    words = ["inputs/toy.toml", "--data", str(file), "--output", str(tmp_path / "z.csv"), *rule]
    assert test_sets.main(words) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "are right" in line]
    assert ": 70 % (34.8 to 93.3 %) of 10 inputs are right" in line


MINE = """
import torch
class Model:
    n_sites, n_values = 2, 3
    def output(self, x):
        return torch.where(x.sum(1) == 4, torch.nan, x.sum(1)).float()
def make(device):
    return Model()
def logits(x):
    return x[:, 0] * 2.0
"""


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        ("0,1\n2,2\n", [], "v.csv, input 2: the model returned a z that is not finite"),
        ("0,1\n1,2\n", ["--rule", "my_sets:logits"], "scores must lie in [0, 1], got 2"),
    ],
)
def test_what_a_model_or_a_rule_may_not_return(rows, more, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_sets.py").write_text(MINE)
    (tmp_path / "v.csv").write_text(rows)
    text = (ROOT / "inputs/toy.toml").read_text().partition("[analysis]")[0]
    model = '[model]\nkind = "python"\nfactory = "my_sets:make"\n'
    head, _, rest = text.partition("[model]")
    (tmp_path / "my.toml").write_text(head + model + rest[rest.index("\n[") :])
    assert test_sets.main(["my.toml", "--data", "v.csv", *more]) == 2
    assert said in capsys.readouterr().err and not list(tmp_path.rglob("*test_sets.csv"))


def test_no_test_data_may_lie_outside_a_constrained_space(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    np.save(tmp_path / "v.npy", np.zeros((1, 64), np.int64))
    lists = ["--set", f"space.allowed={[[*range(17)]] * 63 + [[0]]}"]
    for name in ("digits:1", str(tmp_path / "v.npy")):
        words = [INPUT, "--positives", name, "--negatives", "digits:0", *lists]
        assert test_sets.main([*words, "--output", str(tmp_path / "z.csv")]) == 2
        assert "which may lie outside its space" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--positives", "a.txt"], "give --positives and --negatives, or --data"),
        ([], "give --positives and --negatives, or --data"),
        (["--data", "nowhere"], "expected a folder of pictures or one of .txt"),
        (["--data", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_mistakes_of_own_data(words, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    path = tmp_path / "z.csv"
    assert test_sets.main(["inputs/toy.toml", *words, "--output", str(path)]) == 2
    assert said in capsys.readouterr().err and not path.exists()


def test_an_output_on_the_upper_edge_is_inside_the_last_bin():
    config = input_file.load(ROOT / "inputs/toy.toml", [])
    edges = config.bins.edges
    z = np.array([edges[0], edges[-1], edges[-1] + 1.0, edges[0] - 1.0])
    _, row = test_sets.table([test_sets.Outputs("a", "data", z, np.zeros((4, 8)))], config)
    assert row.endswith("50.0%")


def test_an_input_file_without_an_analysis_table_has_a_side(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "inputs/toy.toml").read_text().partition("[analysis]")[0]
    (tmp_path / "toy.toml").write_text(text)
    (tmp_path / "v.csv").write_text("1,2,3,4,5,6,7,8\n")
    words = [str(tmp_path / "toy.toml"), "--data", str(tmp_path / "v.csv")]
    assert test_sets.main([*words, "--output", str(tmp_path / "z.csv")]) == 0


@pytest.mark.parametrize("output", ["toy.h5", "toy.toml", "z.txt"])
def test_no_run_and_nothing_that_is_read_is_overwritten(tmp_path, capsys, monkeypatch, output):
    monkeypatch.chdir(ROOT)
    data, target = tmp_path / "v.csv", tmp_path / output
    data.write_text("1,2,3,4,5,6,7,8\n")
    target.write_text("mine")
    words = ["inputs/toy.toml", "--data", str(data), "--output"]
    assert test_sets.main([*words, str(target)]) == 2
    assert test_sets.main([*words, str(data)]) == 2
    assert target.read_text() == "mine" and data.read_text().startswith("1,2")


def test_a_built_in_set_is_not_hidden_by_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert test_sets._is_known("digits") and test_sets._is_known("digits:1")
    assert not test_sets._is_known("digits.csv")


@pytest.mark.parametrize("n_values", [2, 17, 256, 65536])
def test_an_image_set_has_the_brightness_of_ones_own_pictures(n_values, tmp_path, monkeypatch):
    """The digits have 17 grey levels, whatever the model has."""
    (tmp_path / "bright.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.scale = torch.nn.Parameter(torch.zeros(1))\n\n"
        "    def forward(self, x):\n        mean = self.scale * x.mean((1, 2, 3))\n"
        "        return torch.stack([mean, 0 * mean], 1)\n"
    )
    save_file({"scale": torch.ones(1)}, tmp_path / "one.safetensors")
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "m.toml"
    file.write_text(
        '[run]\noutput = "m.h5"\nseed = 1\nrounds = 1\n[model]\nkind = "image-classifier"\n'
        f'path = "{tmp_path}/one.safetensors"\nfactory = "bright:Net"\nshape = [8, 8]\n'
        f"n_values = {n_values}\nlabel = 0\n"
        'target = "logit"\n[sampler]\nwalkers = 2\nsteps = 1\nexchanges = 1\n'
        "[ladder]\nbetas = [0.0]\n[bins]\nlower = 0.0\nupper = 1.0\nwidth = 0.1\n"
        "[samples]\nevery = 1\n"
    )
    config = input_file.load(file, [])
    model = models.build(config, "cpu")
    images = test_sets.read_set("digits:1").x.reshape(-1, 8, 8)
    np.save(tmp_path / "mine.npy", np.rint(images * (255 / 16)).astype(np.uint8))
    (known,) = test_sets.outputs_of(model, config, "digits:1", "positive")
    (mine,) = test_sets.outputs_of(model, config, str(tmp_path / "mine.npy"), "data")
    if n_values > 2:  # half of the grey levels round either way
        np.testing.assert_allclose(known.z, images.mean((1, 2)) / 16, atol=1e-3)
    np.testing.assert_allclose(known.z, mine.z, atol=2e-3 if n_values > 2 else 0.1)
