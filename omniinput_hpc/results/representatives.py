"""Representative inputs: a few per bin of z, drawn to represent the bin, as people see them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.display import Display, shown_of, values_as_text
from omniinput_hpc.annotation.drawing import draw_independently
from omniinput_hpc.annotation.tasks import Kind, key_path, read_key, read_tasks
from omniinput_hpc.config import Config, ImageClassifier
from omniinput_hpc.config.models import read_options
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import Side
from omniinput_hpc.estimators.run_data import evenly_spaced_rounds
from omniinput_hpc.models.images.files import shape_of
from omniinput_hpc.results.canonical import CanonicalShare, share_lines
from omniinput_hpc.results.redact import mask
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.tables import Columns, beside, describe_run
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import write_atomically
from omniinput_hpc.untrusted import fasta

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from omniinput_hpc.plots.representatives import ShownBin, ShownInput
    from omniinput_hpc.results.record import Record

PER_BIN = 5
MAX_PRINTED, MAX_WIDTH = 8, 80
"""Texts that are printed, and the characters of each."""
MAX_PICTURES, MAX_PICTURE_BYTES = 1_000_000, 1 << 28
"""Approximate limits on the recorded inputs that pictures are chosen from, and on their bytes."""


@dataclass(frozen=True)
class Representative:
    """An input that represents its bin.

    Attributes
    ----------
    bin : index of its bin
    shown : its text, or its picture as a data URI
    draws : number of times it was drawn
    values : int64 [D]
    score : mean of its scores; None without scores
    tokens : of a text, if they were asked for; else empty
    losses : of its tokens, if they were asked for; NaN if a token is not predicted
    """

    bin: int
    z: float
    shown: str
    draws: int
    values: IntArray
    score: float | None = None
    tokens: Sequence[str] = ()
    losses: Sequence[float] = ()

    def in_figures(self) -> str:
        """Return the text in figures: with tokens, their list, broken only between them."""
        if not self.tokens or self.losses:
            return self.shown
        unbroken = (repr(token).replace(" ", "\N{NO-BREAK SPACE}") for token in self.tokens)
        return f"[{', '.join(unbroken)}]"


@dataclass(frozen=True)
class Representatives:
    """Representative inputs of one run.

    Attributes
    ----------
    kind : "text" or "image"
    prefix : a text that all inputs begin with, displayed separately; None without one
    note : how the inputs are displayed
    how_drawn : description of the drawing
    share : which share of all inputs is canonical, or why that is unknown; None: not asked
    edges : float64 [B + 1], of the bins
    items : by bin
    letters : see `Display.letters`
    """

    kind: Kind
    prefix: str | None
    note: str
    how_drawn: str
    edges: FloatArray
    items: Sequence[Representative]
    share: CanonicalShare | str | None = None
    letters: Callable[[IntArray], list[str]] | None = None

    def of_bin(self, bin_: int) -> list[Representative]:
        """Return the inputs of a bin."""
        return [item for item in self.items if item.bin == bin_]

    def z_text(self, item: Representative) -> str:
        """Return an input's output to a tenth of its bin's width, or as exactly as lies in the bin.

        There is no exponent.
        """
        low, high = self.edges[item.bin : item.bin + 2]
        digits = max(0, 1 - math.floor(math.log10(high - low) + 1e-9))
        texts = [f"{item.z:z.{digits + more}f}" for more in range(3)]
        return next((text for text in texts if low <= float(text) <= high), texts[0])

    def columns(self, with_values: bool) -> Columns:
        """Return the table's columns, a row per input.

        Texts are JSON strings, and lists of tokens JSON lists, so that each row is one line and no
        text is a formula in a spreadsheet.
        """
        items = self.items
        bins = np.array([item.bin for item in items])
        scores = [np.nan if item.score is None else item.score for item in items]
        columns: Columns = {
            "z_lower": self.edges[bins],
            "z_upper": self.edges[bins + 1],
            "z": np.array([f"{item.z:.9g}" for item in items]),
            "draws": np.array([item.draws for item in items]),
            "score": np.array([f"{score:.6g}" for score in scores]),
        }
        if self.kind == "text":
            columns["text"] = np.array([json.dumps(item.shown) for item in items])
        if any(item.tokens and not item.losses for item in items):
            columns["tokens"] = np.array([json.dumps(item.tokens) for item in items])
        if with_values:
            columns["values"] = np.array(
                [" ".join(map(str, item.values.tolist())) for item in items]
            )
        return columns

    def shown_bins(self, bins: Sequence[int]) -> list[ShownBin]:
        """Return bins as figures show them."""
        from omniinput_hpc.plots.representatives import ShownBin, ShownInput

        def shown(item: Representative) -> ShownInput:
            words = [self.z_text(item)]
            words += [] if item.score is None else [f"score {item.score:.2g}"]
            words += [] if item.draws == 1 else [f"\N{MULTIPLICATION SIGN}{item.draws}"]
            content = item.in_figures()
            tokens = content is not item.shown
            return ShownInput(item.z, words[0], ", ".join(words), content, tokens)

        return [
            ShownBin(
                f"{self.edges[b]:.6g} to {self.edges[b + 1]:.6g}",
                [shown(item) for item in self.of_bin(b)],
            )
            for b in bins
        ]

    def examples(self, side: Side) -> list[str]:
        """Return a text of each of the first bins, with its output; none of pictures."""
        if self.kind != "text":
            return []
        first = [self.of_bin(b)[0] for b in self.bins(side)[:MAX_PRINTED]]
        texts = [json.dumps(item.shown, ensure_ascii=False) for item in first]
        cut = [t if len(t) <= MAX_WIDTH else f'{t[: MAX_WIDTH - 4]}..."' for t in texts]
        return [f"z = {self.z_text(i)}: {text}" for i, text in zip(first, cut, strict=True)]

    def bins(self, side: Side) -> list[int]:
        """Return the bins that have inputs, beginning at the confident end."""
        return sorted({item.bin for item in self.items}, reverse=side == "high")

    def fasta(self) -> str | None:
        """Return the inputs as FASTA, with z, the bin and the draws; None if not of letters."""
        if self.letters is None:
            return None
        headers = [
            f"{n} z={i.z:.9g} bin={self.edges[i.bin]:.6g}..{self.edges[i.bin + 1]:.6g} "
            f"draws={i.draws}"
            for n, i in enumerate(self.items, 1)
        ]
        return fasta.text_of(headers, self.letters(np.stack([i.values for i in self.items])))

    def masked(self) -> Representatives:
        """Return the same with e-mail addresses, phone numbers and street addresses masked."""
        if self.kind == "image":
            return self
        items = [replace(item, shown=mask(item.shown)) for item in self.items]
        prefix = None if self.prefix is None else mask(self.prefix)
        return replace(self, prefix=prefix, items=items)


@dataclass(frozen=True, repr=False)
class RepresentativesResult(Written):
    """Representative inputs of one run, or of several whose pictures are shown side by side.

    Attributes
    ----------
    found : of each run
    side : the end of z whose bins come first
    with_values : whether the table holds the inputs' values
    """

    NAME: ClassVar = "representatives"
    TITLE: ClassVar = "Representative inputs of"

    found: Sequence[Representatives]
    side: Side
    with_values: bool

    def columns(self) -> Columns:
        """Return the table's columns; of several runs, `run` is the name of each input's run."""
        tables = [one.columns(self.with_values) for one in self.found]
        if len(tables) == 1:
            return tables[0]
        run = np.repeat(self.names, [len(one.items) for one in self.found])
        return {"run": run} | {key: np.concatenate([t[key] for t in tables]) for key in tables[0]}

    def lines(self) -> list[str]:
        """Return each run, and how its inputs are displayed and drawn."""
        pairs = zip(self.runs, self.found, strict=True)
        return [
            line
            for run, one in pairs
            for line in (
                describe_run(run), f"{one.note}; {one.how_drawn}", *share_lines(one.share),
                *one.examples(self.side),
            )
        ]  # fmt: skip

    def about(self) -> list[str]:
        """Return how the inputs are drawn, and the runs."""
        return [f"representative inputs: {self.found[0].how_drawn}", *map(describe_run, self.runs)]

    def write(self, into: Record, tag: str = "") -> list[str]:
        """Write the files of `Written.write`, and a FASTA file of sequences of letters."""
        files = super().write(into, tag)
        text = self.found[0].fasta() if self.with_values else None
        if text is not None:
            path = beside(into.run_path, f".{self.name}{tag}.fasta")
            write_atomically(path, text)
            into.files.append(str(path))
            files.append(str(path))
        return files

    def figure(self) -> Figure:
        """Return the inputs by bin, beginning at the side."""
        from omniinput_hpc.plots import representatives as plots

        bins = sorted({b for one in self.found for b in one.bins(self.side)})
        if self.side == "high":
            bins.reverse()
        shown = [one.shown_bins(bins) for one in self.found]
        if self.found[0].kind == "text":
            return plots.texts_figure(shown[0], self.label)
        names = self.names if len(shown) > 1 else [""]
        return plots.pictures_figure(shown, names, self.label)

    def density_figure(self) -> Figure:
        """Return the first run's density, with an input of each bin."""
        from omniinput_hpc.plots.density_with_inputs import density_with_inputs_figure

        one = self.found[0]
        bins = one.bins(self.side)
        nearest = 0 if self.side == "low" else -1  # to the confident end
        items = [b.inputs[nearest] for b in one.shown_bins(bins)]
        ends = float(one.edges[min(bins)]), float(one.edges[max(bins) + 1])
        texts = one.kind == "text"
        return density_with_inputs_figure(
            self.densities[0], items, ends, texts, self.side, self.label
        )

    def figures(self) -> dict[str, Figure]:
        """Return the inputs; of one run also its density with them."""
        one = {"density_with_inputs": self.density_figure()} if len(self.found) == 1 else {}
        return {self.NAME: self.figure()} | one


def how_to_show(config: Config, render: bool) -> Display:
    """Return how a run's inputs are displayed; by their values if nothing else is possible.

    With `render`, a `python` model is built for its own ``render``; this runs its code.
    """

    def values(why: str) -> Display:
        return Display("text", values_as_text, None, f"values are shown: {why}")

    if config.model.kind == "python" and not render:
        return values("with --render, the run's own model renders them")
    try:
        return shown_of(config)
    except UserError as error:
        return values(str(error))


def representatives(
    run: RunReader,
    density: Density,
    edges: FloatArray,
    per_bin: int = PER_BIN,
    seed: int = 0,
    render: bool = False,
) -> Representatives:
    """Return representative inputs of each bin of a run, drawn independently."""
    drawn = draw_independently(run.data, density, edges, per_bin, seed)
    how = how_to_show(run.config, render)
    shown = how.show(np.stack([one.values for one in drawn]))
    items = [
        Representative(one.bin, one.z, words, one.draws, one.values)
        for one, words in zip(drawn, shown, strict=True)
    ]
    width = edges[1] - edges[0]
    how_drawn = f"{per_bin} draws per bin of width {width:.6g}, in proportion to weight"
    return Representatives(
        how.kind, how.prefix, how.note, how_drawn, edges, items, letters=how.letters
    )


def with_tokens(
    found: Representatives, config: Config, losses: FloatArray | None = None
) -> Representatives:
    """Return the inputs with their tokens; a UserError if the run's model has no tokenizer.

    losses : float [n, D], of the tokens of all inputs
    """
    list_ = how_to_show(config, render=False).tokens
    if list_ is None:
        raise UserError("--tokens requires a language model whose tokenizer can be read here")
    tokens = list_(np.stack([item.values for item in found.items]))
    items = [replace(i, tokens=words) for i, words in zip(found.items, tokens, strict=True)]
    if losses is not None:
        pairs = zip(items, losses.tolist(), strict=True)
        items = [replace(item, losses=row[: len(item.tokens)]) for item, row in pairs]
    return replace(found, items=items)


def of_tasks(
    tasks_path: Any, fingerprint: str, score_of: Callable[[str], float | None], per_bin: int
) -> Representatives | None:
    """Return a task file's inputs of one model, the first `per_bin` of each bin; None if none.

    `score_of` maps a task id to its mean score, None without one.
    """
    tasks = read_tasks(tasks_path)
    key = read_key(key_path(tasks_path), tasks.tasks_id)
    shown = {task.id: task for task in tasks.tasks}
    ranges = [run.range for run in key.runs if run.model_fingerprint == fingerprint]
    if not ranges:
        return None
    lower, upper = (end(range_[i] for range_ in ranges) for i, end in enumerate((min, max)))
    n_bins = max(1, int(np.ceil((upper - lower) / key.width - 1e-6)))
    items: list[Representative] = []
    count_b = np.zeros(n_bins, dtype=np.int64)
    for item in key.items:
        if item.run is None or item.repeats is not None:
            continue
        if key.runs[item.run].model_fingerprint != fingerprint:
            continue
        assert item.bin_lower is not None and item.z is not None  # not gold
        b = int(np.clip(round((item.bin_lower - lower) / key.width), 0, n_bins - 1))
        if count_b[b] < per_bin:
            count_b[b] += 1
            task = shown[item.id]
            what = (task.text if tasks.kind == "text" else task.png) or ""
            values = np.array(item.x, dtype=np.int64)
            items.append(Representative(b, item.z, what, item.draws, values, score_of(item.id)))
    if not items:
        return None
    prefix = next((task.prefix for task in tasks.tasks if task.prefix is not None), None)
    edges = lower + key.width * np.arange(n_bins + 1, dtype=np.float64)
    how_drawn = f"tasks of {tasks_path.name}, drawn {key.draw_method}"
    return Representatives(
        tasks.kind, prefix, "as the annotators saw them", how_drawn, edges, items
    )


def pictures_at_ends(run: RunReader, n: int) -> list[list[tuple[float, NDArray[np.uint8]]]]:
    """Return n recorded inputs each of low, middle and high z: z and the picture of each.

    Of long runs only evenly spaced rounds are read, to bound the memory. The result is empty if the
    model's inputs are not pictures.

    Raises
    ------
    UserError
        The model's options (perhaps of an older version) or files do not give its pictures' shape,
        or the shape does not match the run.
    """
    if run.config.model.kind != "image-classifier" or not run.rounds or not n:
        return []
    shape = shape_of(read_options(ImageClassifier, run.config.model))
    if shape.n_sites != run.n_sites:
        raise UserError(
            f"{run.path}: the model's pictures now have {shape.n_sites} sites, but the run's have "
            f"{run.n_sites}; --inputs 0 leaves pictures out"
        )
    most = min(MAX_PICTURES, MAX_PICTURE_BYTES // run.n_sites)
    rounds = [run.round(int(r)) for r in evenly_spaced_rounds(run.data, most)]
    x = np.concatenate([one.samples_x.reshape(-1, run.n_sites) for one in rounds])
    z = np.concatenate([one.samples_z.ravel() for one in rounds]).astype(np.float64)
    chosen = choose_inputs(x, z, n)
    return [list(zip(z[i], shape.pixels(x[i]), strict=True)) for i in chosen]


def choose_inputs(x: NDArray[np.integer[Any]], z: FloatArray, n: int) -> list[NDArray[np.int64]]:
    """Return indices of n different inputs each with the lowest, middle and highest outputs.

    Low and high inputs come from the 2% of the recorded range of z at each end, middle ones from
    within 2% of its middle; the n nearest are taken if there are fewer than n.
    """
    _, first = np.unique(x, axis=0, return_index=True)
    order = first[np.argsort(z[first], kind="stable")]
    low, high = z[order[0]], z[order[-1]]
    wanted = (low, 0.5 * (low + high), high)
    reach = 0.02 * (high - low)
    chosen = []
    for middle in wanted:
        near = order[np.abs(z[order] - middle) <= reach]
        if len(near) < n:
            near = order[np.sort(np.argsort(np.abs(z[order] - middle), kind="stable")[:n])]
        chosen.append(near[np.linspace(0, len(near) - 1, min(n, len(near))).round().astype(int)])
    return chosen
