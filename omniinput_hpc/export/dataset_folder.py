"""Recorded inputs as a folder that Hugging Face's datasets loads: parquet, and a card."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.display import Display
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.samples import outputs_by_round
from omniinput_hpc.export.scored_inputs import ScoredInput
from omniinput_hpc.results.density import verdict_lines
from omniinput_hpc.results.representatives import how_to_show
from omniinput_hpc.results.tables import describe_run
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import write_atomically

if TYPE_CHECKING:
    import pyarrow

DATA = "data/train-00000-of-00001.parquet"
"""The file of the rows, named as `datasets` names a split's only file. The card must not name it:
`datasets` would then take the rows that it cached from any earlier folder of this name."""
MEANING = {
    "x": "the input, a value per site",
    "text": "the input as people see it",
    "z": "its output",
    "round": "when it was recorded",
    "rung": "where it was recorded",
    "beta": "inverse temperature of that rung, NaN for a flat-histogram rung",
    "log_weight": "weighted by exp(log_weight), up to one constant, the rows represent {whole}",
}
"""The columns; after them come those of the scores."""
CARD = """---
pretty_name: {title}
---

# Inputs recorded in {name}

{n:,} inputs that omniinput_hpc recorded over the whole input space of a model ({model}). They are
samples of their rungs, not of all inputs: use the weights.

{about}

| column | meaning |
| --- | --- |
{rows}
"""
SCORE = "score_"
"""Prefix of the column of an annotator's scores, null where an input is not scored."""


def write_dataset(
    folder: Path, run: RunReader, density: Density, inputs: Sequence[ScoredInput]
) -> list[Path]:
    """Write the folder, an existing one anew; return its files: the rows, and the card README.md.

    Rounds are written one by one, so that any number of samples fits into the memory.

    Raises
    ------
    ModuleNotFoundError
        pyarrow is not installed.
    UserError
        The folder has a README.md of something else.
    """
    import pyarrow.parquet

    data, card = folder / DATA, folder / "README.md"
    if card.exists() and not data.exists():
        raise UserError(f"{card} belongs to something else: choose another folder by --output")
    data.parent.mkdir(parents=True, exist_ok=True)
    partial, n = data.with_name(data.name + ".partial"), 0
    how, writer = how_to_show(run.config, render=False), None
    for table in _tables(run, density, how, _mean_scores(inputs)):
        writer = writer or pyarrow.parquet.ParquetWriter(partial, table.schema)
        writer.write_table(table)
        n, names = n + len(table), table.column_names
    assert writer is not None  # a run without rounds has no density
    writer.close()
    partial.replace(data)
    write_atomically(card, _card(run, density, how, names, n))
    return [data, card]


def _tables(
    run: RunReader, density: Density, how: Display, scores: dict[str, dict[bytes, float]]
) -> Iterator[pyarrow.Table]:
    """Yield a table per round."""
    import pyarrow

    source, n_rungs = run.data.source, len(run.data.beta_k)
    rung_ks = np.arange(n_rungs)[:, None].repeat(run.samples_per_round, axis=1)
    rounds = zip(source.samples(), outputs_by_round(run.data), strict=True)
    for round_, ((x_ksd, _), (z_i, log_q_ik)) in enumerate(rounds):
        x_id, rung_i = x_ksd.reshape(-1, run.n_sites), rung_ks.ravel()
        columns: dict[str, Any] = {
            "x": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(x_id.ravel()), run.n_sites)
        }
        if how.kind == "text":
            columns["text"] = pyarrow.array(_encodable(how, x_id), pyarrow.string())
        columns |= {
            "z": z_i,
            "round": np.full(len(z_i), round_),
            "rung": rung_i,
            "beta": run.beta_k[rung_i],
            "log_weight": -density.log_mixture(z_i, log_q_ik),
        }
        for name, by_input in scores.items():
            given = [by_input.get(_bytes(x_d)) for x_d in x_id]
            columns[SCORE + name] = pyarrow.array(given, pyarrow.float64())
        yield pyarrow.table(columns)


def _encodable(how: Display, x_id: NDArray[Any]) -> list[str]:
    """Return the texts of inputs; lone surrogates, which UTF-8 lacks, become escapes."""
    texts = how.show(x_id.astype(np.int64))
    return [text.encode("utf-8", "backslashreplace").decode() for text in texts]


def _mean_scores(inputs: Sequence[ScoredInput]) -> dict[str, dict[bytes, float]]:
    """Return each annotator's mean score of each input, which may have been shown twice."""
    given: dict[str, dict[bytes, list[float]]] = {}
    for one in inputs:
        for name, line in one.scores.items():
            assert line.score is not None  # only lines that count
            of_input = given.setdefault(name, {}).setdefault(_bytes(np.array(one.item.x)), [])
            of_input.append(line.score)
    return {
        name: {x: float(np.mean(scores)) for x, scores in by_input.items()}
        for name, by_input in sorted(given.items())
    }


def _bytes(x_d: NDArray[Any]) -> bytes:
    return x_d.astype(np.int64).tobytes()


def _card(run: RunReader, density: Density, how: Display, names: Sequence[str], n: int) -> str:
    """Return the dataset card: where the rows come from, and what the columns mean."""
    whole = "all inputs equally" if density.measure == "count" else "the inputs by the run's law"
    about = [describe_run(run), *verdict_lines(density)]
    about += [] if how.prefix is None else [f"all texts begin after {how.prefix!r}"]
    return CARD.format(
        title=json.dumps(f"inputs recorded in {run.path.name}"),
        name=run.path.name,
        n=n,
        model=f"{run.config.model.kind} {run.config.model_name}",
        about="\n".join(f"- {line}" for line in about),
        rows="\n".join(f"| `{name}` | {_meaning(name).format(whole=whole)} |" for name in names),
    )


def _meaning(name: str) -> str:
    return MEANING.get(name) or f"mean score, 0 to 1, by {name.removeprefix(SCORE)}; or null"
