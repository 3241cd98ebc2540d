"""The table of model kinds: one row holds what a run needs to know of a kind. It imports no torch.

To add a kind: its options as a class in `config.models` (and in the union there), its own module
under `models`, and a row in `KINDS`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from omniinput_hpc import plugins
from omniinput_hpc.config import Allowed, Analysis, Config, Side, Table
from omniinput_hpc.config import models as options_of
from omniinput_hpc.config.output import models_of
from omniinput_hpc.config.stored import OtherOutput
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.display import Display, values_as_text
from omniinput_hpc.models.outputs.table import OUTPUTS, OutputKind
from omniinput_hpc.models.protocol import Model

TOLERANCES = {"float32": 1e-3, "float16": 3e-3, "bfloat16": 2e-2}
"""Allowed difference of z between machines or batch shapes, by the dtype of the weights."""
ROUNDING = {"float32": (2e-5, 3e-6), "float16": (5e-3, 1e-3), "bfloat16": (5e-2, 1e-2)}
"""Allowed difference of z on one machine in batches of one shape: absolute, and relative to z."""
LARGE_OUTPUT = 20.0
"""Outputs of two models are taken to be at most about this large where their difference is z."""
NO_UNIT = "output z (the model's own unit)"


def _class_label(output_key: str, class_key: str) -> Callable[[Table], str]:
    """Return a function that labels a classifier's z; the keys name its output and its class."""
    words = {"difference": "logit difference"}

    def label(model: Table) -> str:
        output, its_class = getattr(model, output_key, "logit"), getattr(model, class_key, 0)
        minus = "\N{MINUS SIGN}" if getattr(model, "sign", 1) == -1 else ""
        if output == "log-likelihood":
            return f"output z, {minus}log-likelihood up to a constant (nats)"
        # Output 0 may be a network's only one, with the logit of class 1: name no class.
        if output_key == "target" and output == "logit" and its_class == 0:
            return f"output z, {minus}logit (nats)"
        word = words.get(output, output)
        if its_class == "any":
            return f"output z, {minus}largest {word} of all classes (nats)"
        return f"output z, {minus}{word} of class {its_class} (nats)"

    return label


def _class_side(model: Table) -> Side:
    """Return the end of z where a classifier is confident: high, unless the sign is -1."""
    return "low" if getattr(model, "sign", 1) == -1 else "high"


@dataclass(frozen=True)
class ModelKind:
    """One row of the table. Modules are named relative to `omniinput_hpc.models`.

    Attributes
    ----------
    options : the class of its table in the input file
    builder : module with ``build(options, device) -> Model``; it may import torch
    checks : module without torch, with ``preflight(options)`` (see `preflight`) and optionally
        ``display(options) -> Display``; without that, values are shown
    z_label : maps the ``[model]`` table, perhaps of another version (see `config.stored`), to the
        label of z
    side : maps that table to the end of z where the model is confident; None if only its author can
        know
    files_are_large : whether `preflight` of `checks` takes ``hashed``
    has_tokenizer : whether ``model.path`` is a folder whose tokenizer maps values to text
    on_lattice : whether z may be a sum of equal terms, so that outputs could lie on edges of bins
    """

    options: type[Table]
    builder: str
    checks: str
    z_label: Callable[[Table], str] = lambda model: NO_UNIT
    side: Callable[[Table], Side | None] = lambda model: None
    has_tokenizer: bool = False
    files_are_large: bool = False
    on_lattice: bool = False


CHANGE_Z = ("target", "output", "sign", "sites", "prefix", "suffix", "tokens", "dtype")
"""Options of text models that change z, or which inputs there are."""
# fmt: off
KINDS = {
    "causal-lm": ModelKind(
        options_of.CausalLm, "language.causal_lm", "language.hf_folder",
        lambda model: "output z, mean NLL (nats per token)", lambda model: "low",
        has_tokenizer=True, files_are_large=True),
    "image-classifier": ModelKind(
        options_of.ImageClassifier, "images.classifier", "images.files",
        _class_label("target", "label"), _class_side),
    "masked-lm": ModelKind(
        options_of.MaskedLm, "language.masked_lm", "language.hf_folder",
        lambda model: "output z, mean pseudo-loss (nats per token)", lambda model: "low",
        has_tokenizer=True, files_are_large=True),
    "potts": ModelKind(
        options_of.Potts, "potts", "potts_file", lambda model: "output z, energy",
        lambda model: "low"),
    "python": ModelKind(options_of.PythonModel, "custom", "custom", on_lattice=True),
    "sequence-classifier": ModelKind(
        options_of.SequenceClassifier, "language.sequence_classifier", "language.hf_folder",
        _class_label("output", "target"), _class_side, has_tokenizer=True, files_are_large=True),
}
# fmt: on


def preflight(config: Config, hashed: bool = True) -> dict[str, Any]:
    """Check the model's files and compute its fingerprint, without importing torch.

    Without `hashed` the fingerprint of large files is None here; `pending_fingerprint` computes it.

    Returns
    -------
    dict with "fingerprint" (str), and what is known of the model before it is built: "n_values",
    "n_sites", "bytes" (None if only the built model tells), "folder", where a language model's
    files are on this machine, "source", the user's own code that makes the model (see
    `plugins.source_of`), "" without such code, and "sources", that of the law and of observables

    Raises `UserError`, which names files that are missing or do not fit the input file.
    """
    found = preflight_kind(config.model, config.allowed, hashed)
    factory = getattr(config.model, "factory", None)
    about = {**found, "source": plugins.source_of(factory) if factory else ""}
    about["sources"] = _sources(config)
    if config.output is not None:
        about = _module("outputs.checks").preflight(config, about)
    if config.law is not None:
        about = _module("law").preflight(config, about)
    if config.constrained:
        parts = [*about.get("parts", ()), _module("constraint").fingerprint(config)]
        about = {**about, "parts": parts}
    return {**about, "fingerprint": _fingerprint(config, about)} if hashed else about


def _sources(config: Config) -> dict[str, str]:
    """Return the user's own code that z does not show, by its attribute in the run file."""
    prompt = getattr(config.law, "prompt", None)
    names: dict[str, list[str | None]] = {
        "law_source": [getattr(one, "factory", None) for one in (config.law, prompt)],
        "observables_source": [what for what in config.observed.values() if ":" in what],
    }
    texts = {key: [plugins.source_of(one) for one in some if one] for key, some in names.items()}
    return {key: "; ".join(filter(None, some)) for key, some in texts.items() if any(some)}


def preflight_kind(model: Table, allowed: Allowed, hashed: bool = True) -> dict[str, Any]:
    """Check the files of a ``[model]`` table of any kind; see `preflight`."""
    row = KINDS[model.kind]  # type: ignore[attr-defined]
    options: dict[str, Any] = {"hashed": hashed} if row.files_are_large else {}
    if row.has_tokenizer:
        options["allowed"] = allowed
    return dict(_module(row.checks).preflight(model, **options))


def options_text(model: Table) -> list[str]:
    """Return the options of a text model that change z, as one text; [] if all have their defaults.

    The hash of its files does not cover them. Fingerprints of other kinds have their own.
    """
    if not KINDS[model.kind].has_tokenizer:  # type: ignore[attr-defined]
        return []
    given = model.model_dump(mode="json", include=set(CHANGE_Z), exclude_defaults=True)
    return [f"options:{json.dumps(given, sort_keys=True)}"] if given else []


def pending_fingerprint(config: Config, about: Mapping[str, Any]) -> Future[str]:
    """Compute the fingerprint in a thread, from what `preflight` found without `hashed`.

    Hashing 14 GB takes seconds. It releases Python's lock, so the model can be loaded meanwhile.
    The thread is a daemon: it does not delay the end of the program.
    """
    found: Future[str] = Future()

    def run() -> None:
        try:
            found.set_result(_fingerprint(config, about))
        except BaseException as error:  # raised again by `found.result`
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found


def _fingerprint(config: Config, about: Mapping[str, Any]) -> str:
    """Return the fingerprint of the model, and of other "parts": texts, or files to hash."""
    checks, own = _module(KINDS[config.model.kind].checks), about["fingerprint"]
    texts = [own if own is not None else checks.fingerprint(list(map(Path, about["files"])))]
    texts += options_text(config.model)
    for part in about.get("parts", ()):
        is_text = isinstance(part, str)
        hashed = _module("language.hf_folder").fingerprint
        texts.append(part if is_text else hashed(list(map(Path, part))))
    return " ".join(texts)


def build(config: Config, device: str, folder: str | None = None) -> Model:
    """Build the model on a device; `folder` is the folder that `preflight` found, if any.

    Raises `UserError` if it cannot be built as the input file describes it.
    """
    options = config.model
    if folder is not None:
        options = options.model_copy(update={"path": folder})
    model = build_kind(options, device, config)
    if config.output is None:
        return model
    builder = _module(f"outputs.{OUTPUTS[config.output.name].builder}")
    found: Model = builder.build(config.model_copy(update={"model": options}), model, device)
    return found


def import_builder(options: Table) -> ModuleType:
    """Import the module that builds a ``[model]`` table, and return it; this may take seconds."""
    row = KINDS[options.kind]  # type: ignore[attr-defined]
    if row.has_tokenizer:
        _module("language.quick_import").transformers()
    builder = _module(row.builder)
    plugins.keep_imports()
    return builder


def build_kind(options: Table, device: str, config: Config) -> Model:
    """Build the model of a ``[model]`` table of any kind, in the space of a run; see `build`."""
    row, builder = KINDS[options.kind], import_builder(options)  # type: ignore[attr-defined]
    more = {"allowed": config.allowed} if row.has_tokenizer else {}
    model: Model = builder.build(options, device, **more)
    end = _module("constraint").end_id(config)
    if end is not None:
        model = _module("outputs.ended").of_ids(model, end, row.has_tokenizer)
    plugins.collect_as_usual()  # all has been imported
    return model


def about_tokens(config: Config) -> list[str]:
    """Return, as lines, what a user should know about a model's tokens to interpret z.

    These are the values that stand for no token, and the tokens that begin every text. It may
    import torch.
    """
    if not KINDS[config.model.kind].has_tokenizer:
        return []
    lines: list[str] = _module("language.token_notes").lines(config)
    return lines


def display(config: Config) -> Display:
    """Return how people see the inputs of a run.

    Raises `UserError` if the kind is unknown, or if its options or files are wrong.
    """
    kind = config.model.kind
    if kind not in KINDS:
        raise UserError(f'unknown model.kind = "{kind}": its inputs cannot be shown')
    row = KINDS[kind]
    options = options_of.read_options(row.options, config.model)
    show = getattr(_module(row.checks), "display", None)
    if show is None:
        return Display("text", values_as_text, None, "values are shown")
    if row.has_tokenizer:
        shown: Display = show(options, config.allowed)
        end = _module("constraint").end_id(config)
        return shown if end is None else shown.until(end)
    return show(options)  # type: ignore[no-any-return]


def encoder(config: Config) -> Callable[[str], list[int]]:
    """Return a function from a text to its values, -1 for a token that no site takes.

    Raises a `UserError` if the model takes no texts.
    """
    kind, model = KINDS[config.model.kind], config.model
    make = getattr(_module(kind.checks), "encoder", None)
    if make is None:
        raise UserError(f'model.kind = "{model.kind}" takes no texts')
    found: Callable[[str], list[int]]
    found = make(model, config.allowed) if kind.has_tokenizer else make(model)
    return found


def z_label(config: Config) -> str:
    """Return the axis label of the output, with its unit if the model's kind defines it."""
    row, table = _row_of_z(config)
    label = NO_UNIT if row is None else row.z_label(table)
    return f"{label}, with noise" if config.noisy else label


def _row_of_z(config: Config) -> tuple[ModelKind | OutputKind | None, Table]:
    """Return the row that knows what z is, and the table of the input that it reads."""
    if config.output is None:
        return KINDS.get(config.model.kind), config.model
    known = not isinstance(config.output, OtherOutput)
    return (OUTPUTS[config.output.name] if known else None), config.output


def on_lattice(config: Config) -> bool:
    """Return whether z may be a sum of equal terms, so that outputs could lie on edges of bins."""
    row, _ = _row_of_z(config)
    return row is not None and row.on_lattice


@dataclass(frozen=True)
class ConfidentSide:
    """The end of z where a model is confident, and how that is known."""

    end: Side
    why: str
    assumed: bool = False

    def __str__(self) -> str:
        """Return a plain line."""
        return f"side: {self.end} ({self.end} outputs are the confident ones; {self.why})"


def side_of(config: Config, given: Side | None = None) -> ConfidentSide:
    """Return the confident side of a run's model.

    `given` (from the command line) has precedence over ``[analysis] side``, and this over the
    model's kind. Without any of them, low is assumed.
    """
    if given is not None:
        return ConfidentSide(given, "as --side says")
    said = None if config.analysis is None else config.analysis.side
    row, table = _row_of_z(config)
    side = None if row is None else row.side(table)
    name = f'model.kind = "{config.model.kind}"'
    if config.output is not None:
        name = f'output.name = "{config.output.name}"'
    if said is not None:
        if side == said:  # a run stores its kind's side too, see `with_side`
            return ConfidentSide(said, f"as is usual for {name}")
        return ConfidentSide(said, "as the run's [analysis] side says")
    if side is not None:
        return ConfidentSide(side, f"the default of {name}")
    what = "a custom model" if config.output is None else name
    why = f"assumed, since {what} may be either; set it with [analysis] side or --side"
    return ConfidentSide("low", why, assumed=True)


def with_side(config: Config) -> Config:
    """Return the input with ``[analysis] side`` filled in, if the model's kind defines it."""
    analysis = config.analysis or Analysis()
    row, table = _row_of_z(config)
    side = analysis.side or (None if row is None else row.side(table))
    if side == analysis.side:
        return config
    return config.model_copy(update={"analysis": analysis.model_copy(update={"side": side})})


def closeness(config: Config, z_n: ArrayLike, model: Model | None = None) -> NDArray[np.float64]:
    """Return the allowed differences of z between machines or batch shapes; inf if noisy.

    They are at least those on one machine (see `rounding`, also for `model`).
    """
    size_n, allowed = np.abs(np.asarray(z_n, np.float64)), rounding(config, model)
    if allowed is None:
        return np.full_like(size_n, np.inf)
    n = len(models_of(config.output, config.model))
    usual_n = np.maximum(n * LARGE_OUTPUT if n > 1 else 1.0, size_n)
    return np.maximum(TOLERANCES[config.rounded_as] * usual_n, allowed[0] + allowed[1] * size_n)


def same_outputs(then_n: ArrayLike, now_n: ArrayLike, config: Config) -> bool:
    """Return whether two z of each of n inputs are those of one model (see `closeness`)."""
    apart_n = np.abs(np.asarray(now_n, np.float64) - np.asarray(then_n, np.float64))
    return bool((apart_n <= closeness(config, then_n)).all())


def rounding(config: Config, model: Model | None = None) -> tuple[float, float] | None:
    """Return the allowed difference of z, absolute and relative, on one machine; None if noisy.

    `model`, once it is built, knows what its size adds (`Potts.rounding`).
    """
    if config.noisy:
        return None
    absolute, relative = ROUNDING[config.rounded_as]
    of_z = models_of(config.output, config.model)
    given = [getattr(model, "rounding", None) for model in of_z or [config.model]]
    if len(of_z) > 1:  # a difference may be far smaller than its terms
        usual = absolute + relative * LARGE_OUTPUT
        return sum(number or usual for number in given), 0.0
    if config.model.kind == "potts":
        absolute += getattr(model, "rounding", 0.0)
    return (given[0], 0.0) if given[0] else (absolute, relative)


def _module(name: str) -> ModuleType:
    return import_module(f"omniinput_hpc.models.{name}")
