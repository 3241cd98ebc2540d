"""Fine-tune DistilBERT on SST-2 from files in local folders, by a schedule of ours.

``python -m omniinput_hpc.zoo.sst2 --data FOLDER --base FOLDER`` reads SST-2's TSV files from one
folder and the pretrained model from the other, and writes inputs/models/distilbert-sst2, which
inputs/distilbert-66.toml and inputs/distilbert-10.toml sample. The papers' model reaches 91 %.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE, UserError
from omniinput_hpc.models.language import hf_folder
from omniinput_hpc.untrusted.files import read_text
from omniinput_zoo import keep_existing, new_parser

BASE = "distilbert/distilbert-base-uncased"
PAPERS_ACCURACY = 91.0
MAX_TOKENS = 66
"""Tokens of the longest sentence of SST-2, including [CLS] and [SEP] (OmniInput, appendix D)."""
MAX_BYTES = 1 << 28
LABELS = {0: "negative", 1: "positive"}

FILES = {"train": "train.tsv", "test": "dev.tsv"}
HOW_TO_FETCH = (
    "fetch SST-2 of GLUE (SST-2.zip, https://gluebenchmark.com/tasks), put train.tsv and dev.tsv "
    "there; the labels of GLUE's test.tsv are secret, so dev.tsv is the test set"
)


@dataclass(frozen=True)
class Effort:
    """How long the model is trained; the defaults are those of BERT's authors for GLUE."""

    epochs: int = 3
    batch: int = 32
    rate: float = 2e-5


def read_sst2(folder: Path, part: str) -> tuple[list[str], list[int]]:
    """Return the sentences of "train" or "test" (GLUE's dev.tsv) and their classes, 0 and 1.

    Raises a `UserError` if the file is missing or a line is wrong.
    """
    path = folder / FILES[part]
    if not path.exists():
        raise UserError(f"{path} not found: {HOW_TO_FETCH}")
    text = read_text(path, "file of sentences (.tsv)", MAX_BYTES)
    rows = [line.split("\t") for line in text.removesuffix("\n").split("\n")]
    if rows[0] != ["sentence", "label"]:
        raise UserError(f"{path}, line 1: expected the columns sentence and label; {HOW_TO_FETCH}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != 2 or row[1].strip() not in ("0", "1"):
            raise UserError(
                f"{path}, line {number}: expected a sentence, a tab, and 0 or 1; is the file "
                "complete?"
            )
    if len(rows) < 2:
        raise UserError(f"{path} holds no sentences")
    return [row[0].strip() for row in rows[1:]], [int(row[1]) for row in rows[1:]]


def main(arguments: list[str] | None = None) -> int:
    """Run ``python -m omniinput_hpc.zoo.sst2``; return 0, or 2 for bad input."""
    parser = new_parser("sst2", __doc__, "distilbert-sst2")
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with train.tsv and dev.tsv"
    )
    parser.add_argument("--base", default=BASE, help=f"folder or cached name (default {BASE})")
    parser.add_argument("--epochs", type=int, default=Effort.epochs)
    parser.add_argument("--rate", type=float, default=Effort.rate)
    args = parser.parse_args(arguments)
    try:
        train, test = read_sst2(args.data, "train"), read_sst2(args.data, "test")
        base = hf_folder.resolve(args.base, "--base")
        hf_folder.read_config(base)
        hf_folder.weight_files(base, args.base)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    keep_existing(args, args.output)

    import torch

    torch.set_num_threads(args.threads)
    effort = Effort(epochs=args.epochs, rate=args.rate)
    reached = train_and_save(base, train, test, effort, args.seed, args.output)
    print(
        f"{args.output.name}: {100 * reached:.2f} % of {len(test[0])} test sentences correct "
        f"(the papers' model: {PAPERS_ACCURACY:g} %)"
    )
    return EXIT_COMPLETE


def train_and_save(
    base: Path,
    train: tuple[list[str], list[int]],
    test: tuple[list[str], list[int]],
    effort: Effort,
    seed: int,
    output: Path,
) -> float:
    """Fine-tune; write weights, tokenizer and training.json; return the test accuracy."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from omniinput_zoo.training import OneCycle

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
    model = AutoModelForSequenceClassification.from_pretrained(
        base, num_labels=2, local_files_only=True, use_safetensors=True, trust_remote_code=False,
        id2label=LABELS, label2id={name: number for number, name in LABELS.items()},
    )  # fmt: skip
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device).train()
    sentences, classes = train
    y = torch.tensor(classes)
    n_batches = math.ceil(len(y) / effort.batch)
    training = OneCycle(
        model, effort.rate, effort.epochs * n_batches, output.name, decay=0.01, pct_start=0.1,
        anneal_strategy="linear",
    )  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    with training.bar:
        for _ in range(effort.epochs):
            for chosen in torch.randperm(len(y), generator=generator).chunk(n_batches):
                batch = _encode(tokenizer, [sentences[i] for i in chosen.tolist()]).to(device)
                loss = model(**batch, labels=y[chosen].to(device)).loss
                training.step(loss, 1.0, loss=f"{loss.item():.4f}")
    reached = accuracy(model, tokenizer, *test)
    model.to("cpu").save_pretrained(output)
    tokenizer.save_pretrained(output)
    about = {"base": str(base), "seed": seed, **vars(effort), "test_accuracy": round(reached, 6),
             "test_sentences": len(test[0]),
             "papers_test_accuracy": PAPERS_ACCURACY / 100}  # fmt: skip
    (output / "training.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return reached


def accuracy(model: Any, tokenizer: Any, sentences: list[str], classes: list[int]) -> float:
    """Return the share of correctly classified sentences."""
    import torch

    model.eval()
    right = 0
    for i in range(0, len(sentences), 64):
        batch = _encode(tokenizer, sentences[i : i + 64]).to(model.device)
        with torch.no_grad():
            found = model(**batch).logits.argmax(dim=1).tolist()
        right += sum(a == b for a, b in zip(found, classes[i : i + 64], strict=True))
    return right / len(sentences)


def _encode(tokenizer: Any, sentences: list[str]) -> Any:
    encoded = tokenizer(
        sentences, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
    )
    encoded.pop("token_type_ids", None)  # DistilBERT has none
    return encoded


if __name__ == "__main__":
    raise SystemExit(main())
