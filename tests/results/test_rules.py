"""Rules that read texts: patterns, words, functions by the name of their argument; and mistakes."""

import json

import numpy as np
import pytest
from hostile_words import write_model_folder
from lattice import MODEL
from run_files import EDGES, write_run
from script_tools import inside, is_plain, undrawn

import omniinput_hpc
from omniinput_hpc.config import Analysis
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.precision_recall.curves import accumulate, area
from omniinput_hpc.results.rules import rule_of
from omniinput_hpc.runfile.reader import open_run

__all__ = ["inside", "undrawn"]
WORDS = ["zero", "one", "two (2)", "three"]
RULES = "def begins(texts):\n    return [text.startswith('zero') for text in texts]\n"


@pytest.fixture
def folder(tmp_path):
    write_model_folder(tmp_path / "none", WORDS)
    write_run(tmp_path / "one.h5", walkers=16, seed=1)
    (tmp_path / "my_rules.py").write_text(RULES)
    return tmp_path


def exact_aupr():
    """Return the AUPR of "the first value is 0"."""
    g_b, right_b = (MODEL.bin_sums(EDGES, v) for v in (MODEL.count_l(), MODEL.right_l()))
    seen = g_b > 0
    return area(*accumulate(np.log(g_b[seen]), right_b[seen] / g_b[seen], "low"))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["regex:^zero", "my_rules:begins", "toy_rules:begins_with_zero"])
def test_the_curve_of_a_rule_that_reads_texts_is_the_exact_one(folder, inside, undrawn, rule):
    options = ("--fewest-inputs", 1, "--fewest-lanes", 1)
    code, _, err = inside("precision_recall.py", "one.h5", "--rule", rule, *options)
    assert (code, err) == (0, ""), err
    (entry,) = json.loads((folder / "one.results.json").read_text())["analyses"]
    found = entry["values"]["one: AUPR"]
    assert abs(found["value"] - exact_aupr()) < 4 * found["error"]


@pytest.mark.usefixtures("inside")
def test_what_is_right(folder):
    with open_run(folder / "one.h5") as run:
        x = np.array([[0, 1, 2, 3, 3, 3, 3, 3], [1, 1, 1, 1, 1, 1, 1, 3]])
        for name, expected in [("contains:(2)", [1, 0]), ("regex:(one ?){3}", [0, 1]),
                               ("contains:three", [1, 1]), ("regex:.", [1, 1])]:  # fmt: skip
            assert rule_of(name, run.config)(x).tolist() == expected, name
        for words, expected in (("One\ntwo\nthree\n", [1, 1]), ("one three", [0, 1])):
            (folder / "words").write_text(words)
            assert rule_of("words:words", run.config)(x).tolist() == expected, words
        assert rule_of("words:words", run.config)(x[:, :6])[1] == 0  # four words and two ends
        with pytest.raises(UserError, match=r"words:no: cannot read no .*a word on each line"):
            rule_of("words:no", run.config)
        for empty in ("contains:", "regex:"):
            with pytest.raises(UserError, match=rf"{empty} finds every .* after the colon"):
                rule_of(empty, run.config)
        with pytest.raises(UserError, match="not a regular expression"):
            rule_of("regex:(", run.config)


def test_a_function_of_the_interface_may_ask_for_texts(folder, inside):
    with omniinput_hpc.open("one.h5") as run:
        by_text = run.precision_recall(lambda texts: [t.startswith("zero") for t in texts])
        by_value = run.precision_recall(lambda x: x[:, 0] == 0)
    assert by_text.aupr == by_value.aupr


def test_inputs_without_texts_are_refused(tmp_path, inside):
    write_run(tmp_path / "one.h5", walkers=16, seed=1)
    code, _, err = inside("precision_recall.py", "one.h5", "--rule", "contains:a")
    assert is_plain(code, err, "none"), err


def test_the_input_file_may_name_one():
    for rule in ("regex:a|b", "contains:x y", "module:function"):
        assert Analysis(rule=rule).rule == rule
    with pytest.raises(ValueError, match="module:function"):
        Analysis(rule="no function")
