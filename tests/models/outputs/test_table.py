"""Labels and sides of outputs; which may lie on edges of bins."""

import pytest
from output_cases import config_of

from omniinput_hpc.models.outputs.table import OUTPUTS
from omniinput_hpc.models.table import on_lattice, side_of, with_side, z_label

LM = {"path": "p", "length": 4}
MINUS = "\N{MINUS SIGN}"
CASES = [
    ({"name": "next", "targets": [" yes"]}, f"{MINUS}ln P(' yes') of the next token", "low"),
    ({"name": "next", "targets": [1, 2, 3, 4]}, f"{MINUS}ln P(1, 2, 3, ...) of", "low"),
    ({"name": "next", "targets": [1, 2], "aggregate": "max"}, f"{MINUS}ln max P(1, 2) of", "low"),
    ({"name": "next", "targets": [1], "against": [2]}, f"ln P(2) {MINUS} ln P(1) of the", None),
    ({"name": "next", "targets": [1], "against": "others"}, f"ln P(others) {MINUS} ln P(1)", "low"),
    ({"name": "text", "text": "so it is"}, "mean NLL of 'so it is' (nats per token)", "low"),
    ({"name": "text", "text": "ab" * 40}, "mean NLL of 'ababab", "low"),
    ({"name": "difference", "other": {"kind": "causal-lm", "path": "q"}}, "NLL of q (nats", None),
    ({"name": "difference", "other": {"kind": "potts", "path": "q"}},
     f"energy {MINUS} energy of q", None),
    ({"name": "difference", "other": {"kind": "python", "factory": "a:b"}},
     f"output {MINUS} output of a:b", None),
    ({"name": "classifier", "path": "q", "class": 2}, "the judge's logit of class 2 (nats)", None),
    ({"name": "python", "function": "a:b"}, "output z, a:b", None),
]  # fmt: skip


@pytest.mark.parametrize("table, label, side", CASES)
def test_an_output_has_its_label_and_its_side(table, label, side):
    config = config_of(LM, table)
    assert label in z_label(config) and z_label(config).startswith("output z, ")
    assert len(z_label(config)) < 100
    found = side_of(config)
    assert found.end == (side or "low") and found.assumed == (side is None)
    assert f'output.name = "{table["name"]}"' in str(found)
    assert (with_side(config).analysis is None) == (side is None)
    said = config_of(LM, table, analysis={"side": "high"})
    assert side_of(said).end == "high" and not side_of(said).assumed
    assert on_lattice(config) == (table["name"] == "python")


def test_every_output_is_tried():
    assert {table["name"] for table, *_ in CASES} == set(OUTPUTS)


def test_without_the_table_they_are_the_models():
    config = config_of(LM, None)
    assert "mean NLL (nats per token)" in z_label(config) and side_of(config).end == "low"
    own = config_of({"kind": "python", "factory": "a:b"}, None)
    assert on_lattice(own) and not on_lattice(config)
    assert "a custom model may be either" in str(side_of(own))
