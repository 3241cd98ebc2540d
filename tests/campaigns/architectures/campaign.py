"""Every decoder and text classifier of transformers: is the recorded z Hugging Face's own?

    .venv/bin/python tests/campaigns/architectures/campaign.py [TASK[/TYPE] ...] [--rows FILE]
        [--table FILE]

A TASK is `causal` or `classifier`. Of each type a tiny folder with random weights is made, the
command is run on it, and each recorded z is compared with Hugging Face's loss, or logit, of the
recorded input; the gradient, where it is offered, must come with the same z. One forked process a
type. What becomes of a type:

right        the command ran, and z is Hugging Face's
WRONG        it ran, and z, or the gradient's z, is not
refused      exit code 2 and a reason
FAILED       any other end, or a traceback
HUNG         it had to be stopped
unmakeable   no tiny folder could be made here
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from importlib import import_module
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "campaigns"), str(TESTS.parent)]

import h5py
import numpy as np
import torch
from architectures import folders

PATIENCE = 150.0
"""Seconds for a type, from the making of its folder to the last comparison; of a machine that does
nothing else."""
MOST_APART = 2e-3
N_COMPARED = 60
DETOURS = {
    "whole inputs are evaluated": "whole inputs",
    "are evaluated again": "states",
    "one by one": "one by one",
}
"""What the log says of inputs that are not evaluated by keys and values, in short."""
RIGHT, REFUSED, UNMAKEABLE = "right", "refused", "unmakeable"

INPUT = """
[run]
output = "{out}"
seed = 1
rounds = 1
burn_in = 1
[model]
{model}
[sampler]
walkers = 8
steps = 4
exchanges = 2
[ladder]
betas = {betas}
[kernel]
name = "{kernel}"
[bins]
lower = -20.0
upper = 40.0
width = 0.02
[samples]
every = 2
"""


def options_of(task, folder):
    """Return the table [model] as a dictionary."""
    if task == "causal":
        return {"kind": "causal-lm", "path": str(folder), "length": folders.LENGTH}
    return {
        "kind": "sequence-classifier", "path": str(folder), "length": folders.LENGTH, "target": 1,
    }  # fmt: skip


def row_of(task, model_type, work):
    """Make a folder, run the command and compare; return what became of it."""
    try:
        truth = folders.make(model_type, task, work / "model")
    except folders.Unmakeable as reason:
        return {"class": UNMAKEABLE, "why": str(reason)}
    code, text = run(task, work)
    lines = [line for line in text.splitlines() if line.strip()]
    if code != 0 or "Traceback" in text:
        refused = code == 2 and "Traceback" not in text
        why = next((line for line in lines if "omniinput_hpc:" in line or "Error" in line), "")
        return {"class": REFUSED if refused else "FAILED", "code": code, "why": why[:400]}
    with h5py.File(work / "run.h5", "r", locking=False) as file:
        x = torch.from_numpy(file["samples/x"][...].astype(np.int64)).flatten(0, 2)
        z = torch.from_numpy(file["samples/z"][...]).flatten()
    some = with_special_tokens_first(x)
    apart = float((z[some] - z_of(task, truth, work / "model", x[some])).abs().max())
    gradient, apart_too = gradient_of(task, work / "model", x[some][:16])
    wrong = not (apart <= MOST_APART and apart_too <= MOST_APART)
    notes = [line[:200] for line in lines if any(words in line for words in DETOURS)]
    return {
        "class": "WRONG" if wrong else RIGHT, "apart": apart, "gradient": gradient, "notes": notes
    }  # fmt: skip


def with_special_tokens_first(x):
    """Return the numbers of the inputs that are compared: those first with special tokens."""
    n_special = (x < 4).sum(1) + torch.rand(len(x), generator=torch.Generator().manual_seed(1))
    return n_special.argsort(descending=True)[:N_COMPARED]


def run(task, work):
    """Run the command in this process; return its exit code and all that it wrote."""
    from omniinput_hpc.cli import run as command

    table = "\n".join(f"{k} = {json.dumps(v)}" for k, v in options_of(task, work / "model").items())
    betas, kernel = ([0.0, 4.0, 9.0], "lm-conditional")
    if task == "classifier":
        betas, kernel = ([-1.0, 0.0, 0.5], "metropolis")
    (work / "in.toml").write_text(
        INPUT.format(out=work / "run.h5", model=table, betas=betas, kernel=kernel)
    )
    with open(work / "log", "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        code = command.main([str(work / "in.toml")])
    except SystemExit as leaving:
        code = leaving.code or 0
    except BaseException:  # whatever ends the command is the row's result: a FAILED one
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code, (work / "log").read_text()


@torch.no_grad()
def z_of(task, truth, folder, x):
    """Return Hugging Face's loss of inputs, or the logit in the frame that the program uses."""
    from omniinput_hpc.models.language import hf_folder, tokenizer

    if task == "classifier":
        words, n_vocab = tokenizer.read(folder), hf_folder.n_vocab_of(folder)
        before, after = (
            torch.tensor(ids, dtype=torch.int64).expand(len(x), -1)
            for ids in hf_folder.frame(folder, n_vocab, words)
        )
        return folders.evaluated(truth, torch.cat([before, x, after], dim=1))[:, 1]
    found = []
    for row in x:
        ids = row[None]
        logits = truth(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
        found.append(torch.nn.functional.cross_entropy(logits[0, :-1].float(), ids[0, 1:]))
    return torch.stack(found)


def gradient_of(task, folder, x):
    """Return what became of the gradient, and how far its z is from z."""
    from omniinput_hpc.config import CausalLm, SequenceClassifier
    from omniinput_hpc.models import offers_of
    from omniinput_hpc.models.language import causal_lm, sequence_classifier

    options = options_of(task, folder)
    if task == "causal":
        model = causal_lm.build(CausalLm.model_validate(options), "cpu")
    else:
        model = sequence_classifier.build(SequenceClassifier.model_validate(options), "cpu")
    offers = offers_of(model)
    why = offers.without_gradient()
    if why:
        return f"not offered: {why}"[:300], 0.0
    z, (z_too, g) = model.output(x), offers.output_and_gradient(x)
    if not bool(g.isfinite().all()):
        return "not finite", float("inf")
    return "offered", float((z - z_too).abs().max())


def import_all():
    """Import what each forked process would import otherwise."""
    import_module("omniinput_hpc.cli.run")
    import_module("omniinput_hpc.models.language.causal_lm")
    import_module("omniinput_hpc.models.language.sequence_classifier")
    import_module("omniinput_hpc.models.checked")
    with tempfile.TemporaryDirectory() as folder:  # what transformers imports when it is first used
        folders.make("llama", "causal", Path(folder))


def outcome(task, model_type, work, patience=PATIENCE):
    """Return the row of a type, found in a forked process that is stopped after some seconds."""
    work.mkdir(parents=True)
    begin = time.monotonic()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        os.setsid()
        try:
            row = row_of(task, model_type, work)
        except BaseException as error:
            traceback.print_exc()
            row = {"class": "FAILED", "why": f"compared: {type(error).__name__}: {error}"[:300]}
        os.write(theirs, json.dumps(row).encode())
        os._exit(0)
    os.close(theirs)
    data = b""
    while True:
        left = patience - (time.monotonic() - begin)
        if not select.select([ours], [], [], max(left, 0))[0]:
            os.killpg(child, signal.SIGKILL)
            break
        part = os.read(ours, 1 << 16)
        if not part:
            break
        data += part
    os.waitpid(child, 0)
    os.close(ours)
    if data:
        row = json.loads(data)
    else:  # stopped above, or ended by MPI_Abort
        log = (work / "log").read_text().splitlines() if (work / "log").exists() else []
        why = next((line for line in reversed(log) if "Error" in line or "models." in line), "")
        hung = time.monotonic() - begin >= patience
        row = {"class": "HUNG" if hung else "FAILED", "why": why[:400]}
    return {"task": task, "type": model_type, "seconds": round(time.monotonic() - begin, 1), **row}


def wanted(words):
    """Return (task, type) of each word: of all types where it names a task alone."""
    for word in words or folders.TASKS:
        task, _, model_type = word.partition("/")
        yield from ((task, name) for name in ([model_type] if model_type else folders.types(task)))


def problems_of(rows):
    """Return the rows that no type may have."""
    good = (RIGHT, REFUSED, UNMAKEABLE)
    return [row for row in rows if row["class"] not in good]


def table_of(rows):
    """Return a table in Markdown: which types are evaluated how, and why; or why not."""
    alike = {}
    for row in rows:
        said = next(iter(row.get("notes", [])), row.get("why", ""))
        way = next((name for words, name in DETOURS.items() if words in said), "keys and values")
        way = way if row["class"] == RIGHT else ""
        alike.setdefault((row["class"], way, reason_of(said, row["class"])), []).append(row["type"])
    lines = ["| z is | evaluated by | why | types |", "| --- | --- | --- | --- |"]
    for (result, way, why), types in sorted(alike.items(), key=lambda item: -len(item[1])):
        lines.append(f"| {result} | {way} | {why} | {len(types)}: {', '.join(types)} |")
    return "\n".join(lines)


def reason_of(said, result):
    """Return the reason in a line of the log, without numbers and names that differ by type."""
    if result == UNMAKEABLE:
        return "no tiny model could be made here"
    reason = re.split(r"every move: |again: |/model: ", said)[-1]
    return re.sub(r"( \(|, so this |; | at non-).*", "", reason).replace("|", "/")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="TASK[/TYPE]")
    parser.add_argument("--rows", type=Path, help="append rows as JSON lines; skip what it holds")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no type after so many")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds for a type")
    parser.add_argument("--keep", type=Path, help="keep the folders of what went wrong here")
    parser.add_argument("--table", type=Path, help="write a table in Markdown")
    options = parser.parse_args(arguments)
    rows, begin = [], time.monotonic()
    if options.rows and options.rows.exists():
        rows = [json.loads(line) for line in options.rows.read_text().splitlines()]
    done = {(row["task"], row["type"]) for row in rows}
    import_all()
    root = Path(tempfile.mkdtemp(prefix="omniinput-architectures-", dir=options.keep))
    for task, model_type in wanted(options.names):
        if (task, model_type) in done or time.monotonic() - begin > options.seconds:
            continue
        work = root / task / model_type
        row = outcome(task, model_type, work, options.patience)
        rows.append(row)
        if options.rows:
            with options.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
        said = row.get("why") or f"{row.get('apart', 0):.1e} apart, gradient {row.get('gradient')}"
        print(f"{task}/{model_type}: {row['class']} ({row['seconds']} s): {said}", flush=True)
        if options.keep is None or row not in problems_of(rows):
            shutil.rmtree(work)
    if options.keep is None:
        shutil.rmtree(root)
    if options.table:
        options.table.write_text(table_of(rows) + "\n")
    counts = Counter((row["task"], row["class"]) for row in rows)
    print("\n".join(f"{task} {kind}: {n}" for (task, kind), n in sorted(counts.items())))
    return 1 if problems_of(rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
