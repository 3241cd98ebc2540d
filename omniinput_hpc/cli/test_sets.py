r"""Evaluate a model on test sets: its outputs, and the usual AUPR, AUROC and FPR95.

All positives are compared with each set of negatives (OmniInput, Tables 1 to 3; S2 of
docs/papers.md, Table 1)::

    omniinput test-sets inputs/cnn-mnist.toml --positives mnist:FOLDER:1 \
        --negatives mnist:FOLDER:0 --negatives fashion:OTHER_FOLDER
    omniinput test-sets inputs/english-25.toml --data my_texts.txt

A set is one of these:

- ``NAME:FOLDER[:CLASSES]``, with the test files in FOLDER and classes such as 0 or 0,2,3. NAME is
  mnist, fashion, kuzushiji, emnist (byclass, turned upright), emnist-as-stored (on their side,
  which reproduces the papers' numbers), qmnist, cifar10 or cifar100.
- ``digits[:CLASSES]``, the test images of scikit-learn's digits.
- A file of your own, for every kind of model: texts (.txt, one per line; .jsonl with "text" and
  optionally "label"), sequences of letters (.fasta), values (.npy, .csv, .jsonl with "values") or
  pictures (.npy, a folder of PNG, JPEG, TIFF, ...).

--data takes files with labels (1 positive, 0 negative) or without. The model, the meaning of z and
the side come from the input file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from sklearn.metrics import (
    auc,
    average_precision_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

from omniinput_hpc import models
from omniinput_hpc.cli import own_data
from omniinput_hpc.cli.arguments import add_set, new_parser
from omniinput_hpc.cli.scripts import check_output, new_record
from omniinput_hpc.config import CausalLm, Config, ImageClassifier, input_file
from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE, UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.models.images.data_sets import (
    IDX_SETS,
    Images,
    digits_test_set,
    read_cifar,
    read_idx_set,
)
from omniinput_hpc.models.table import side_of
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.rules import rule_of, rule_words
from omniinput_hpc.text import interval, print_any_text, write_atomically
from omniinput_hpc.untrusted import fasta

BATCH = 256
ROLES = ("positive", "negative", "data")
KNOWN_SETS = ("digits", *IDX_SETS, "cifar10", "cifar100")
PROGRAM = "omniinput test-sets"
Letters = Callable[[NDArray[Any]], list[str]]


def read_set(text: str) -> Images:
    """Return the images of a set given as ``NAME:FOLDER[:CLASSES]``.

    Raises a UserError if the set or class does not exist, or if its files are missing or broken.
    """
    name, _, rest = text.partition(":")
    folder, _, classes = ("", "", rest) if name == "digits" else rest.partition(":")
    if name not in KNOWN_SETS:
        raise UserError(f"{text}: no such set; known: {', '.join(KNOWN_SETS)}")
    if name != "digits" and not folder:
        raise UserError(f"{text}: expected {name}:FOLDER or {name}:FOLDER:CLASSES")
    if name == "digits":
        images = digits_test_set()
    elif name in IDX_SETS:
        images = read_idx_set(Path(folder), name, "test")
    else:
        images = read_cifar(Path(folder), int(name.removeprefix("cifar")), "test")
    if classes:
        if not all(c.strip().isdigit() for c in classes.split(",")):
            raise UserError(f"{text}: expected classes such as 0,2,3, found {classes!r}")
        images = images.only(*sorted({int(c) for c in classes.split(",")}))
    if not len(images):
        raise UserError(f"{text}: the set has no images of class {classes}")
    return images


def scores(
    positive: NDArray[np.float64], negative: NDArray[np.float64]
) -> tuple[float, float, float, float]:
    """Return AUPR, average precision, AUROC and FPR95 of outputs z; a higher z means positive.

    The AUPR joins the curve's points by straight lines, the average precision by steps. FPR95 is
    the share of negatives above the threshold that finds 95% of the positives.
    """
    truth = np.concatenate([np.ones(len(positive)), np.zeros(len(negative))])
    z = np.concatenate([positive, negative])
    precision, recall, _ = precision_recall_curve(truth, z)
    false_rate, true_rate, _ = roc_curve(truth, z, drop_intermediate=False)
    fpr95 = float(false_rate[np.argmax(true_rate >= 0.95)])
    average = float(average_precision_score(truth, z))
    return float(auc(recall, precision)), average, float(roc_auc_score(truth, z)), fpr95


def _outputs(model: models.Model, x: NDArray[Any], name: str) -> NDArray[np.float64]:
    from omniinput_hpc.models import batches  # imports torch

    z = batches.evaluate(model, x, min(BATCH, len(x)), "cpu").astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(z))
    if wrong.size:
        raise UserError(
            f"{name}, input {wrong[0] + 1}: the model returned a z that is not finite; correct the "
            "model, or leave this input out"
        )
    return z


@dataclass(frozen=True)
class Outputs:
    """Outputs of one role of one set.

    Attributes
    ----------
    name : of the set
    role : "positive", "negative", or "data" if unknown
    z : float64 [n]
    ids : int64 [n, D], of the inputs
    names : of the inputs in a FASTA file; else empty
    """

    name: str
    role: str
    z: NDArray[np.float64]
    ids: NDArray[Any]
    names: Sequence[str] = ()


def _is_known(name: str) -> bool:
    """Return whether a name is that of a known set, even if a file or folder has the same name."""
    return name.partition(":")[0] in KNOWN_SETS


def _refuse_shared_folders(names: Sequence[str]) -> None:
    """Raise a UserError if one folder is given for two sets whose files have the same names."""
    of_folder: dict[Path, str] = {}
    for name, folder in (text.split(":")[:2] for text in names if ":" in text):
        if IDX_SETS.get(name, ("", ""))[1] != IDX_SETS["mnist"][1]:
            continue
        first = of_folder.setdefault(Path(folder).resolve(), name)
        if first != name:
            raise UserError(
                f"{first}:{folder} and {name}:{folder} are the same files, since the files of the "
                "two sets have the same names; keep each set in a folder of its own"
            )


def outputs_of(model: models.Model, config: Config, name: str, role: str) -> list[Outputs]:
    """Return the outputs of a set as named on the command line; labels split a file by role.

    Raises a UserError if the set does not exist or does not fit the model.
    """
    own_data.check_space(name, config)
    if _is_known(name) or not own_data.is_file_of_data(name):
        if role == "data":
            raise UserError(
                f"--data {name}: expected a folder of pictures or one of "
                f"{', '.join(own_data.ENDINGS)}"
            )
        if not isinstance(config.model, ImageClassifier):
            raise UserError(
                f'{name} is a set of images, but model.kind = "{config.model.kind}"; give a '
                "file of your own"
            )
        x = read_set(name).at_levels(model.n_values)
        if x.shape[1] != model.n_sites:
            raise UserError(f"{name} has {x.shape[1]} sites; the model takes {model.n_sites}")
        return [Outputs(name, role, _outputs(model, x, name), x)]
    space, render = models.space_of(model), models.offers_of(model).render
    data = own_data.read(Path(name), config, model.n_sites, space, render)
    for note in data.notes + (_about_texts(config) if data.of_texts else []):
        print(f"note: {note}")
    z, roles = _outputs(model, data.x, name), np.array(data.role)
    ids = models.space_of(model).to_ids(data.x)
    if role != "data" and not {"data", role}.issuperset(data.role):
        raise UserError(
            f"{name}: some of its labels contradict --{role}s; give the file to --data, which "
            "divides it by its labels"
        )
    if role != "data" or data.names:  # sequences of a FASTA file have no labels
        return [Outputs(name, role, z, ids, data.names)]
    parts = [(one, roles == one) for one in ROLES if (roles == one).any()]
    return [Outputs(name, one, z[its], ids[its]) for one, its in parts]


def _about_texts(config: Config) -> list[str]:
    """Return a note on whether texts were read with the tokens that begin every text."""
    from omniinput_hpc.models.language import token_notes  # imports torch

    begins = token_notes.beginning_of(config.model) if isinstance(config.model, CausalLm) else None
    if begins is None:
        return []
    if begins.is_there:
        return [f"each text was read with one {begins.name} in front of it, as model.prefix says"]
    return [
        f"texts were read without {begins.name}, although the tokenizer begins every text with it; "
        f"model.prefix = {token_notes.as_toml(begins.prefix)} puts it in front"
    ]


def write_outputs(
    path: Path, found: Sequence[Outputs], record: Record, letters: Letters | None = None
) -> list[Path]:
    """Write the CSV ``set,role,z``, which omniinput overlay draws over rho(z), and the record.

    With `letters` (see `Display.letters`) also the inputs of files as FASTA. Returns the files;
    raises a UserError if one cannot be written.
    """
    sizes = [len(one.z) for one in found]
    columns = {
        "set": np.repeat([one.name for one in found], sizes),
        "role": np.repeat([one.role for one in found], sizes),
        "z": np.array([float(f"{value:.7g}") for one in found for value in one.z]),
    }
    files = [path, path.with_suffix(".fasta")] if letters else [path]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if letters:
            write_atomically(files[1], _fasta(found, letters))
            record.files.append(str(files[1]))
        record.add_table(path, ["outputs z of test sets"], columns)
        record.save()
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
    return files


def _fasta(found: Sequence[Outputs], letters: Letters) -> str:
    """Return the inputs as FASTA: their names, or their file's name and their number, and z."""
    headers: list[str] = []
    sequences: list[str] = []
    for one in found:
        names = one.names or [f"{Path(one.name).stem}_{n + 1}" for n in range(len(one.z))]
        headers += [f"{name} z={z:.7g}" for name, z in zip(names, one.z, strict=True)]
        sequences += letters(one.ids)
    return fasta.text_of(headers, sequences)


def table(found: Sequence[Outputs], config: Config) -> list[str]:
    """Return lines, one per set: the range of its outputs, and the share beyond the bins."""
    width = max(len(one.name) for one in found)
    lines = [f"{'set':<{width}}  role           n      lowest   median   highest  beyond the bins"]
    edges = config.bins.edges
    for one in found:
        beyond = float(np.mean((one.z < edges[0]) | (one.z > edges[-1])))
        lines.append(
            f"{one.name:<{width}}  {one.role:<8} {len(one.z):7d}  {one.z.min():10.4g} "
            f"{np.median(one.z):8.4g}  {one.z.max():8.4g}  {beyond:.1%}"
        )
    return lines


def evaluation(found: Sequence[Outputs], side: str) -> list[str]:
    """Return the table of `scores`, in percent, of all positives against each set of negatives.

    It is empty without positives or negatives. `side` is the end of z that means positive.
    """
    sign = 1.0 if side == "high" else -1.0
    positive = [one.z for one in found if one.role == "positive"]
    negatives = [one for one in found if one.role == "negative"]
    if not positive or not negatives:
        return []
    z = np.concatenate(positive)
    width = max(len("negatives"), *(len(one.name) for one in negatives))
    lines = [
        f"positives: {len(z)}, found at {side} z",
        f"{'negatives':<{width}}       n    AUPR      AP   AUROC   FPR95  "
        "(in percent; AP: average precision)",
    ]
    for one in negatives:
        row = "".join(f"{100 * value:8.2f}" for value in scores(sign * z, sign * one.z))
        lines.append(f"{one.name:<{width}}  {len(one.z):6d}{row}")
    return lines


def shares_right(found: Sequence[Outputs], rule: str, config: Config) -> list[str]:
    """Return a line per set: which share of its inputs a rule calls right.

    The interval is that of Clopper and Pearson. Raises a UserError as `rule_of` does.
    """
    judge, lines = rule_of(rule, config), []
    for one in found:
        right, n = float(np.sum(judge(one.ids))), len(one.z)
        ends = scipy.stats.binomtest(round(right), n).proportion_ci()
        lines.append(
            f"{one.name}: {100 * right / n:.3g} % "
            f"({interval(100 * ends.low, 100 * ends.high, '.3g')} %) of {n:,} inputs are right, by "
            f"{rule_words(rule)}"
        )
    return lines


def _arguments(arguments: Sequence[str] | None, program: str) -> argparse.Namespace:
    example = "inputs/digits-mlp.toml --positives digits:1 --negatives digits:0"
    kind = argparse.ArgumentParser
    parser = new_parser(program, __doc__, example, more="", kind=kind)
    add = parser.add_argument
    add("input", type=Path, metavar="INPUT.toml", help="the input file of the model")
    add("--positives", metavar="SET", help="the set of positives")
    others = "a set of negatives (may be repeated)"
    add("--negatives", action="append", default=[], metavar="SET", help=others)
    own = "your own texts, pictures or values (may be repeated)"
    add("--data", action="append", default=[], metavar="FILE", help=own)
    right = "what is right, as in omniinput precision-recall: print the share of each set"
    add("--rule", metavar="RULE", help=right)
    where = "the table to write (default: RUN.test_sets.csv next to the run file)"
    add("--output", type=Path, metavar="FILE.csv", help=where)
    add_set(parser)
    args = parser.parse_args(arguments)
    if bool(args.positives) != bool(args.negatives) or not (args.positives or args.data):
        raise UserError("give --positives and --negatives, or --data, or all of them")
    return args


def _run(arguments: Sequence[str] | None, program: str) -> None:
    args = _arguments(arguments, program)
    config = input_file.load(args.input, args.set)
    models.preflight(config)
    roles = {"positive": filter(None, [args.positives]), "negative": args.negatives}
    named = [(name, role) for role, names in {**roles, "data": args.data}.items() for name in names]
    own = [Path(name) for name, _ in named if not _is_known(name)]
    check_output(args.output, [args.input, *own], ".csv")
    check_output(args.output and args.output.with_suffix(".fasta"), own)
    _refuse_shared_folders([name for name, _ in named if _is_known(name)])
    for name, _ in named:  # report mistakes before the model is loaded
        if _is_known(name) and isinstance(config.model, ImageClassifier):
            read_set(name)
    model = models.build(config, "cpu")
    found = [one for name, role in named for one in outputs_of(model, config, name, role)]
    run = Path(config.run.output)
    path = args.output or run.with_name(run.stem + ".test_sets.csv")
    side = side_of(config).end
    lines = table(found, config) + evaluation(found, side)
    lines += shares_right(found, args.rule, config) if args.rule else []
    record = new_record(program, arguments or sys.argv[1:], args, path.with_name(run.name))
    record.notes = lines
    # a python model says only how people see its inputs
    letters = None if config.model.kind == "python" else models.display(config).letters
    files = write_outputs(path, found, record, letters)
    print("\n".join([*lines, *map(str, files)]))


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run ``omniinput test-sets``; return 0, or 2 for bad input."""
    print_any_text()
    try:
        _run(arguments, program)
    except (UserError, EstimateError) as error:  # the latter from the rule
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return EXIT_COMPLETE
