r"""The traditional evaluation: AUPR, AUROC and FPR95 of a classifier on given test sets.

The positives stay the same, the negatives vary (OmniInput, Tables 1 to 3; Liu et al. 2023,
Table 1)::

    python -m omniinput_hpc.test_sets inputs/cnn-mnist.toml --positives mnist:FOLDER:1 \
        --negatives mnist:FOLDER:0 --negatives fashion:FOLDER

A set is ``NAME:FOLDER[:CLASSES]``: mnist, fashion, kuzushiji, emnist (byclass), qmnist, cifar10,
cifar100, with the test files in FOLDER and classes such as 0 or 0,2,3; or ``digits[:CLASSES]``,
the test images of scikit-learn's digits. The model and the meaning of z are the input file's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import auc, precision_recall_curve, roc_auc_score, roc_curve

from omniinput_hpc import models
from omniinput_hpc.cli.arguments import add_set
from omniinput_hpc.cli.scripts import add_version
from omniinput_hpc.config import ImageClassifier, input_file
from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE, UserError
from omniinput_hpc.results.tables import write_table
from omniinput_hpc.zoo.image_data import IDX_SETS, Images, read_cifar, read_idx_set

BATCH = 256
PROGRAM = "python -m omniinput_hpc.test_sets"


def read_set(text: str) -> Images:
    """Return the images of a set given as ``NAME:FOLDER[:CLASSES]``.

    Raises a UserError where there is no such set or class, or its files are missing or broken.
    """
    name, _, rest = text.partition(":")
    folder, _, classes = ("", "", rest) if name == "digits" else rest.partition(":")
    known = ["digits", *IDX_SETS, "cifar10", "cifar100"]
    if name not in known:
        raise UserError(f"{text}: no such set; known: {', '.join(known)}")
    if name != "digits" and not folder:
        raise UserError(f"{text}: expected {name}:FOLDER or {name}:FOLDER:CLASSES")
    if name == "digits":
        from omniinput_hpc.zoo import digits

        images = digits.split(digits.digits())[1]
    elif name in IDX_SETS:
        images = read_idx_set(Path(folder), name, "test")
    else:
        images = read_cifar(Path(folder), int(name.removeprefix("cifar")), "test")
    if classes:
        if not all(c.strip().isdigit() for c in classes.split(",")):
            raise UserError(f"{text}: classes are whole numbers with commas, found {classes!r}")
        images = images.only(*sorted({int(c) for c in classes.split(",")}))
    if not len(images):
        raise UserError(f"{text}: the set has no images of class {classes}")
    return images


def scores(
    positive: NDArray[np.float64], negative: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Return AUPR, AUROC and FPR95 of outputs z; a higher z means positive.

    FPR95 is the share of negatives above the threshold that finds 95% of the positives.
    """
    truth = np.concatenate([np.ones(len(positive)), np.zeros(len(negative))])
    z = np.concatenate([positive, negative])
    precision, recall, _ = precision_recall_curve(truth, z)
    false_rate, true_rate, _ = roc_curve(truth, z, drop_intermediate=False)
    fpr95 = float(false_rate[np.argmax(true_rate >= 0.95)])
    return float(auc(recall, precision)), float(roc_auc_score(truth, z)), fpr95


def evaluate(model: models.Model, images: Images, name: str) -> NDArray[np.float64]:
    """Return z of images, float64 [n].

    Raises a UserError where the images' number of sites or grey levels differs from the model's.
    """
    from omniinput_hpc.models import batches  # imports torch

    if images.x.shape[1] != model.n_sites or images.x.max() >= model.n_values:
        raise UserError(
            f"{name} has {images.x.shape[1]} sites with values up to {images.x.max()}; the model "
            f"takes {model.n_sites} sites with values up to {model.n_values - 1}"
        )
    return batches.evaluate(model, images.x, BATCH, "cpu").astype(np.float64)


def write_outputs(path: Path, about: str, names: list[str], z: list[NDArray[np.float64]]) -> None:
    """Write the CSV ``set,role,z``, which analysis/overlay.py draws over rho(z).

    Raises a UserError where it cannot be written.
    """
    sizes = [len(z_n) for z_n in z]
    columns = {
        "set": np.repeat(names, sizes),
        "role": np.repeat(["positive"] + ["negative"] * (len(names) - 1), sizes),
        "z": np.array([float(f"{value:.7g}") for z_n in z for value in z_n]),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(path, [f"outputs z of test sets, {about}"], columns)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None


def _run(arguments: Sequence[str] | None, program: str) -> None:
    example = "inputs/digits-mlp.toml --positives digits:1 --negatives digits:0"
    parser = argparse.ArgumentParser(
        prog=program, description=__doc__, epilog=f"example:\n  {program} {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_version(parser)
    add = parser.add_argument
    add("input", type=Path, metavar="INPUT.toml", help="the input file, for its model")
    add("--positives", required=True, metavar="SET", help="the set of the class looked for")
    others = "a set of others (may be repeated)"
    add("--negatives", required=True, action="append", metavar="SET", help=others)
    where = "the table (default: beside the run, RUN.test_sets.csv)"
    add("--output", type=Path, metavar="FILE.csv", help=where)
    add_set(parser)
    args = parser.parse_args(arguments)
    config = input_file.load(args.input, args.set)
    if not isinstance(config.model, ImageClassifier):
        raise UserError(f'{args.input}: model.kind must be "image-classifier"')
    models.preflight(config)
    names = [args.positives, *args.negatives]
    sets = [read_set(name) for name in names]
    model = models.build(config, "cpu")
    z = [evaluate(model, images, name) for images, name in zip(sets, names, strict=True)]
    run = Path(config.run.output)
    path = args.output or run.with_name(run.stem + ".test_sets.csv")
    write_outputs(path, str(args.input), names, z)
    print(f"positives: {names[0]}, {len(z[0])} images")
    width = max(map(len, names[1:]))
    print(f"{'negatives':<{width}}  images    AUPR   AUROC   FPR95  (in percent)")
    for name, z_n in zip(names[1:], z[1:], strict=True):
        row = "".join(f"{100 * value:8.2f}" for value in scores(z[0], z_n))
        print(f"{name:<{width}}  {len(z_n):6d}{row}")
    print(path)


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Command line of ``python -m omniinput_hpc.test_sets``: 0 done, 2 bad input."""
    try:
        _run(arguments, program)
    except UserError as error:
        print(f"omniinput_hpc.test_sets: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return EXIT_COMPLETE


if __name__ == "__main__":
    raise SystemExit(main())
