"""Train a small English language model on the text that comes with every Python.

The text is `pydoc_data.topics` (the language reference as pydoc shows it) and the docstrings of the
standard library, split into paragraphs of prose. ``python -m omniinput_hpc.zoo.english`` trains a
byte-level tokenizer and a GPT-2 of two million parameters. The text is small, so the weights with
the lowest loss on the held-out paragraphs are kept. ``--words FILE`` writes the text's words, for
the rule ``words:FILE``, and trains nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import math
import platform
import random
import re
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import ByteLevelBPETokenizer
from tqdm import trange
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast
from transformers.utils import logging as hf_logging

from omniinput_zoo import keep_existing, new_parser
from omniinput_zoo.training import build_gpt2, cosine_rate, descend

# Not part of every installation (Debian packages them separately), or not meant to be read.
EXCLUDED_FOLDERS = {
    "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test",
    "tests", "turtledemo",
}  # fmt: skip
MIN_CHARACTERS = 40
MIN_SHARE_OF_LETTERS = 0.85
CODE_MARKS = (">>>", "...   ", "::=", "===", "---", "+--")

END_OF_TEXT = "<|endoftext|>"
N_VALUES = 2000
WINDOW = 64  # tokens per training window, and positions of the model
BATCH_SIZE = 32
WARM_UP_STEPS = 200
HELD_OUT_SHARE = 0.05
SHORT_LENGTH = 25  # the length of inputs/english-25.toml


def paragraphs() -> list[str]:
    """Return the distinct paragraphs of prose, in a fixed order, each on one line."""
    found: dict[str, None] = {}
    for text in _texts():
        for block in text.split("\n\n"):
            line = " ".join(block.split())
            if _is_prose(block, line):
                found.setdefault(line)
    return list(found)


def write_words(file: Path) -> None:
    """Write the words that occur twice or more in the paragraphs, one on each line.

    A word is what it is to the rule ``words:FILE`` (`omniinput_hpc.results.rules.WORD`).
    """
    found = Counter(re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", " ".join(paragraphs()).lower()))
    file.parent.mkdir(parents=True, exist_ok=True)
    words = sorted(word for word, times in found.items() if times > 1)
    file.write_text("\n".join(words) + "\n", encoding="utf-8")


def split(texts: list[str], held_out: float, seed: int) -> tuple[list[str], list[str]]:
    """Return the training paragraphs and the held-out ones, a share `held_out` of all."""
    shuffled = list(texts)
    random.Random(seed).shuffle(shuffled)
    n = round(held_out * len(shuffled))
    return shuffled[n:], shuffled[:n]


def _texts() -> Iterator[str]:
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield topics[name]
    root = Path(sysconfig.get_path("stdlib"))
    for file in sorted(root.rglob("*.py")):
        if EXCLUDED_FOLDERS.isdisjoint(file.relative_to(root).parts):
            yield from _docstrings(file.read_bytes())


def _docstrings(source: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def _is_prose(block: str, line: str) -> bool:
    if len(line) < MIN_CHARACTERS or any(mark in block for mark in CODE_MARKS):
        return False
    letters = sum(c.isalpha() or c == " " for c in line)
    return letters >= MIN_SHARE_OF_LETTERS * len(line)


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with `N_VALUES` tokens; END_OF_TEXT is token 0."""
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        texts, N_VALUES, min_frequency=2, show_progress=False, special_tokens=[END_OF_TEXT]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer, eos_token=END_OF_TEXT, bos_token=END_OF_TEXT
    )


def build_model(width: int, layers: int, dropout: float) -> GPT2LMHeadModel:
    """Return the untrained model, with heads of width 32 and tied embeddings."""
    return build_gpt2(
        dropout, vocab_size=N_VALUES, n_positions=WINDOW, n_embd=width, n_layer=layers,
        n_head=width // 32, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


def encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> torch.Tensor:
    """Return all paragraphs as one int64 stream of tokens, END_OF_TEXT before each."""
    rows = tokenizer(texts)["input_ids"]
    return torch.tensor([token for row in rows for token in (0, *row)])


def windows(stream: torch.Tensor, starts: torch.Tensor, length: int) -> torch.Tensor:
    """Return the tokens from each start on, int64 [n, length]."""
    return stream[starts[:, None] + torch.arange(length)]


@torch.no_grad()
def held_out_nll(model: GPT2LMHeadModel, stream: torch.Tensor, length: int) -> float:
    """Return the mean NLL in nats per predicted token over windows that tile a stream."""
    was_training = model.training
    model.eval()
    x = windows(stream, torch.arange(0, len(stream) - length + 1, length), length)
    nll = [model(part, labels=part).loss.item() * len(part) for part in x.split(64)]
    model.train(was_training)
    return float(sum(nll) / len(x))


def train(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Train; save the tokenizer, the best weights and a report to a folder; return the report."""
    torch.manual_seed(args.seed)
    texts = paragraphs()
    learnt, held = split(texts, HELD_OUT_SHARE, args.seed)
    tokenizer = train_tokenizer(learnt)
    train_stream, held_stream = encode(tokenizer, learnt), encode(tokenizer, held)
    model = build_model(args.width, args.layers, args.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.1)
    report: dict[str, Any] = {
        "text_sha256": hashlib.sha256("\n".join(texts).encode()).hexdigest(),
        "python": platform.python_version(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "train_tokens": len(train_stream),
        "held_out_tokens": len(held_stream),
        "steps": args.steps,
        "seed": args.seed,
        "held_out_nll": math.inf,
    }
    tokenizer.save_pretrained(folder)
    begin = time.monotonic()
    bar = trange(args.steps, unit="step", mininterval=10)
    model.train()
    for step in bar:
        optimizer.param_groups[0]["lr"] = cosine_rate(step, args.steps, WARM_UP_STEPS)
        starts = torch.randint(len(train_stream) - WINDOW + 1, (BATCH_SIZE,))
        x = windows(train_stream, starts, WINDOW)
        loss = model(x, labels=x, use_cache=False).loss
        descend(loss, optimizer)
        late = time.monotonic() - begin > 60 * args.minutes or step + 1 == args.last_step
        if (step + 1) % 200 == 0 or step + 1 == args.steps or late:
            nll = held_out_nll(model, held_stream, WINDOW)
            bar.set_postfix_str(f"loss {loss.item():.3f}, held out {nll:.3f}")
            if nll < report["held_out_nll"]:
                short = held_out_nll(model, held_stream, SHORT_LENGTH)
                report |= {
                    "best_step": step + 1,
                    "held_out_nll": round(nll, 4),
                    "held_out_perplexity": round(math.exp(nll), 2),
                    f"held_out_nll_of_{SHORT_LENGTH}_tokens": round(short, 4),
                }
                _save(model, folder, report)
        if late:
            bar.write(f"stopped at step {step + 1} of {args.steps}")
            break
    return report


def _save(model: GPT2LMHeadModel, folder: Path, report: dict[str, Any]) -> None:
    """Save the weights as float16 (they are loaded as float32), and the report."""
    half = copy.deepcopy(model).half()
    half.save_pretrained(folder, safe_serialization=True)
    (folder / "training.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run ``python -m omniinput_hpc.zoo.english``."""
    parser = new_parser("english", __doc__, "english")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument(
        "--last-step", type=int, help="stop at this step; the rates stay those of --steps"
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="stop after this many")
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.15)
    parser.add_argument("--words", type=Path, help="write the text's words here, and end")
    args = parser.parse_args(arguments)
    if args.words:
        write_words(args.words)
        return 0
    keep_existing(args, args.output)
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    report = train(args.output, args)
    print(
        f"held-out perplexity {report['held_out_perplexity']} ({report['held_out_nll']} nats per "
        f"token) at step {report['best_step']}; weights in {args.output}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
