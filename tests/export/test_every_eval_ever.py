"""Results as Every Eval Ever: they hold to the schema, and the numbers are the analyses'.

If the package every_eval_ever (Python 3.12) is installed, its own schema judges too.
"""

import json
import math
from importlib import resources
from importlib.util import find_spec
from types import SimpleNamespace

import jsonschema
import pytest
from rules_file import MODEL, RULE
from run_files import EDGES, write_run
from script_tools import is_plain

from omniinput_hpc.export.every_eval_ever import SCHEMA_VERSION, _space

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
NUMBER = {"type": "number"}
BOUND = {"anyOf": [NUMBER, {"enum": ["Infinity", "-Infinity"]}]}


def closed(needed=None, **known):
    """Return the schema of an object with these keys only, by default all of them."""
    needed = list(known) if needed is None else needed
    keys = {"properties": known, "required": needed, "additionalProperties": False}
    return {"type": "object", **keys}


TEXT = {"type": "string"}
METRIC = closed(
    ["metric_id", "lower_is_better", "score_type", "min_score", "max_score"],
    metric_id=TEXT, metric_name=TEXT, metric_kind=TEXT, metric_unit=TEXT,
    metric_parameters={"type": "object", "additionalProperties": {"type": ["number", "null"]}},
    lower_is_better={"type": "boolean"}, score_type={"enum": ["binary", "continuous"]},
    min_score=BOUND, max_score=BOUND, additional_details=TEXTS,
)  # fmt: skip
INTERVAL = closed(lower=NUMBER, upper=NUMBER, confidence_level={"const": 0.95})
SCORE = closed(
    ["score"], score=NUMBER, details=TEXTS,
    uncertainty=closed([], standard_error=closed(value=NUMBER), confidence_interval=INTERVAL),
)  # fmt: skip
RESULT = closed(
    evaluation_result_id=TEXT, evaluation_name=TEXT,
    source_data=closed(dataset_name=TEXT, source_type={"const": "other"}, additional_details=TEXTS),
    generation_config=closed(additional_details=TEXTS), metric_config=METRIC, score_details=SCORE,
)  # fmt: skip
OURS = closed(
    schema_version={"const": SCHEMA_VERSION}, evaluation_id=TEXT, evaluation_timestamp=TEXT,
    retrieved_timestamp={"type": "string", "pattern": "^[0-9]+$"},
    source_metadata=closed(
        source_name=TEXT, source_type={"const": "evaluation_run"}, source_organization_name=TEXT,
        evaluator_relationship={"const": "other"},
    ),
    eval_library=closed(name=TEXT, version=TEXT),
    model_info=closed(
        name=TEXT, id=TEXT, additional_details=closed(
            deployment_type={"const": "self_deployed"}, model_availability={"const": "unknown"},
            kind=TEXT, fingerprint=TEXT,
        ),
    ),
    evaluation_results={"type": "array", "items": RESULT, "minItems": 1},
)  # fmt: skip
"""What version 0.3.0 allows, as far as records of this program use it, and no more."""
SCHEMAS = [OURS]
if find_spec("every_eval_ever"):
    THEIRS = resources.files("every_eval_ever") / "schemas/eval.schema.json"
    SCHEMAS.append(json.loads(THEIRS.read_text(encoding="utf-8")))


def results(folder, name="good"):
    """Return a record's results by their metric, after judging the record."""
    record = json.loads((folder / f"{name}.every-eval-ever.json").read_text())
    for schema in SCHEMAS:
        jsonschema.validate(record, schema)
    ids = [r["metric_config"]["metric_id"].removeprefix("omniinput.")
           for r in record["evaluation_results"]]  # fmt: skip
    return record, dict(zip(ids, record["evaluation_results"], strict=True))


BY_SCORES = ["--scores", "good.scores.ann.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize("by", [["--rule", RULE], BY_SCORES], ids=["rule", "scores"])
def test_its_numbers_are_the_analyses(export, inside, tmp_path, by):
    code, out, err = export("every-eval-ever", *by, "--model-id", "org/tiny")
    assert (code, err) == (0, "") and "AUPR: 0." in out
    record, found = results(tmp_path)
    assert list(found) == ["converged", "log10_number_inside", "aupr", "log10_number_right"]
    assert record["model_info"]["id"] == "org/tiny"
    assert found["aupr"]["evaluation_name"] == "whole input space of org/tiny"
    (tmp_path / "good.results.json").unlink()
    assert inside("precision_recall.py", "good.h5", *by)[0] == 0
    (entry,) = json.loads((tmp_path / "good.results.json").read_text())["analyses"]
    value, given = entry["values"]["good: AUPR"], found["aupr"]["score_details"]
    interval = given["uncertainty"]["confidence_interval"]
    assert given["score"] == value["value"]
    assert given["uncertainty"]["standard_error"]["value"] == value["error"]
    assert (interval["lower"], interval["upper"]) == (value["low"], value["high"])
    assert found["converged"]["score_details"] == {"score": 1.0, "details": {}}
    inside_bins = found["log10_number_inside"]["score_details"]["score"]
    assert inside_bins == pytest.approx(8 * math.log10(4))
    right = found["log10_number_right"]["score_details"]
    ends = right["uncertainty"]["confidence_interval"]
    assert ends["lower"] <= right["score"] <= ends["upper"] <= inside_bins
    if by != BY_SCORES:  # a quarter of all inputs begin with 0
        assert ends["lower"] - 0.1 <= inside_bins - math.log10(4) <= ends["upper"] + 0.1


def test_a_relative_density_has_no_numbers_of_inputs(tmp_path, inside):
    write_run(tmp_path / "cold.h5", beta_k=[1.0, 2.0], edges=EDGES, rounds=2, moves=20, model=MODEL)
    code, out, err = inside("export.py", "cold.h5", "--to", "every-eval-ever")
    assert (code, err) == (0, "")
    _, found = results(tmp_path, "cold")
    assert list(found) == ["converged"]
    said = found["converged"]["score_details"]
    assert said["score"] == 0.0 and said["details"]["reason 1"] in out
    assert found["converged"]["evaluation_name"] == "whole input space of my_rules:make"


def test_a_constrained_space_is_named():
    config = SimpleNamespace(law_name="", constrained=True, constraint="space.pattern")
    run = SimpleNamespace(config=config, n_sites=6, n_values=9)
    name = _space(run, SimpleNamespace(measure="count"))["dataset_name"]
    assert name == "the inputs that space.pattern allows, of all inputs of 6 sites of 9 values"


def test_an_output_that_is_read_is_not_replaced(export, tmp_path):
    before = (tmp_path / "good.tasks.key.jsonl").read_bytes()
    code, _, err = export("every-eval-ever", "--output", "good.h5.txt")
    assert is_plain(code, err, "the name must end with .json"), err
    code, _, err = export("every-eval-ever", *BY_SCORES, "--output", "a.json")
    assert (code, err) == (0, "")
    assert (tmp_path / "good.tasks.key.jsonl").read_bytes() == before
