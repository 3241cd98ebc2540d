"""Write the proposed input file as text, with comments that explain each number."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import tomli_w

from omniinput_hpc.config import UNDER_LAW
from omniinput_hpc.pilot import draws
from omniinput_hpc.pilot.proposal import Aim, Proposal
from omniinput_hpc.pilot.settings import Length, width_times_beta
from omniinput_hpc.sampling.forecast import WIDTH_TIMES_BETA
from omniinput_hpc.text import duration, printable

COLUMN = 27
"""The column at which comments begin."""
LINE = 110
"""Characters per line of a comment."""
KERNELS = {
    "lm-conditional": "redraws tokens from the model's own next-token probabilities",
    "gibbs-with-gradients": "changes one value at a time, guided by the gradient of z",
    "metropolis": "changes one value at a time, at random: the model offers only outputs",
    "mixture": "redraws parts of an input inside the space, and follows the gradient of z",
}
MODEL = {
    "length": "tokens per input",
    "target": "the class, or the image network's output, that gives z",
    "output": '"logit", "difference" (of two classes), "log-softmax" or "log-odds"',
    "prefix": "put before every input; compare how the tokenizer begins texts",
}
GIVEN = {
    "law": {"kind": '"model": an input is as likely as the model writes it'},
    "output": {
        "targets": "z = -ln of their probability as the next token after an input",
        "after": "fixed, between every input and the target",
        "text": "z = its mean loss per token after an input",
    },
    "space": {
        "allowed": 'the values of the sites; "tokenizer": tokens of the tokenizer',
        "pattern": "only inputs whose whole text matches it",
    },
}
"""Comments on the keys of tables that may be left out."""


def text(proposal: Proposal, output: str, aim: Aim, about: Sequence[str]) -> str:
    """Return the text of the input file.

    output : the run file
    about : comments on how and where the input file was made, and notes on it
    """
    tree, length = proposal.tree, proposal.length
    drawn = proposal.at_zero or tree["sampler"]["method"] == draws.METHOD
    tuned = {} if drawn else {"burn_in": length.burn_in}
    run = tree["run"] | {"output": output, "rounds": length.rounds} | tuned
    parts = [
        _comment(*about),
        _comment(*summary(proposal)),
        "",
        _table("run", run, {
            "rounds": _rounds(proposal, aim),
            "burn_in": "earlier rounds, not counted, that tune the betas",
        }),
        _table("model", tree["model"], MODEL),
        *(_table(name, tree[name], words) for name, words in GIVEN.items() if name in tree),
        _sampler(proposal),
        _comment(*_ladder(proposal)),
        _table("ladder", tree["ladder"], {"tune": "burn-in moves the betas between the ends"}),
        *([] if drawn else [_kernel(tree)]),
        _comment(
            f"The pilot saw z from {proposal.spread.lowest:.4g} to {proposal.spread.highest:.4g}; "
            "the bins leave room beyond."
        ),
        _table("bins", tree["bins"], {"width": _width(proposal)}),
        _table("samples", tree["samples"], {
            "every": "moves between two recorded inputs" if tree["samples"]["every"] > 1 else
            "every draw is recorded"
        }),
        *([] if proposal.side is None else [_analysis(proposal)]),
    ]  # fmt: skip
    return "\n".join(parts).rstrip() + "\n"


def summary(proposal: Proposal) -> list[str]:
    """Return the pilot's findings and the estimated cost of the run, as readable lines."""
    mean, sd = proposal.z_at_zero
    spread, betas = proposal.spread, proposal.tree["ladder"]["betas"]
    drawn = "inputs drawn from the law" if "law" in proposal.tree else "uniform inputs"
    lines = [
        f"Seen: {drawn} have z = {mean:.4g} +- {sd:.3g}; all inputs tried have z from "
        f"{spread.lowest:.4g} to {spread.highest:.4g}.",
    ]
    if proposal.m is not None:
        lines.append(f"{proposal.m:g} tokens of each text are predicted (m).")
    chosen = f"{len(betas)} betas from {betas[0]:g} to {betas[-1]:g}"
    if proposal.at_zero:
        chosen = "beta = 0 alone"
        lines.append(
            f"Random inputs already get a probability of about {math.exp(mean):.2g}, so "
            "independent draws of them tell how often the model is sure. Inputs too rare for that, "
            "of which it may be surer, need chains: --hours 1."
        )
    lines += [
        f"Chosen: {chosen}, {_how(proposal)}.",
        f"Cost, estimated by the pilot: {cost(proposal)}; more on a busy machine.",
    ]
    return lines + [f"Note: {note}." for note in proposal.notes]


def _how(proposal: Proposal) -> str:
    """Return how inputs are sampled, as a phrase."""
    sampler = proposal.tree["sampler"]
    if proposal.at_zero or sampler["method"] == draws.METHOD:
        n = proposal.length.moves * sampler["walkers"]
        return f"{n:,} independent draws" + ("" if proposal.at_zero else " per beta")
    kernel = proposal.tree.get("kernel", UNDER_LAW)["name"]
    return f"kernel {kernel}, {sampler['walkers']} walkers per beta"


def cost(proposal: Proposal) -> str:
    """Return the time of the run on 1, 2 and 4 processes, as a phrase."""
    n_shares = len(proposal.tree["ladder"]["betas"]) * proposal.tree["sampler"].get("blocks", 1)
    shares = [n for n in (2, 4) if n_shares % n == 0]
    more = ", ".join(f"{duration(proposal.seconds / n)} on {n}" for n in shares)
    on_more = f" ({more}, each with its own core or GPU)" if more else ""
    return f"{duration(proposal.seconds)} on one process{on_more}"


def _rounds(proposal: Proposal, aim: Aim) -> str:
    if proposal.at_zero:
        return "more rounds see rarer inputs"
    if aim.hours is not None:
        return f"for {aim.hours:g} h of one process (estimated)"
    seen = proposal.seen.rehearsal
    if not math.isfinite(seen.error):
        return f"errors of ln g could not be estimated; the aim was {aim.errors:g}"
    return f"for errors of ln g of about {aim.errors:g} (estimated); more rounds reduce them"


def _width(proposal: Proposal) -> str:
    if proposal.at_zero:
        return "z = ln 0.9 and ln 0.99 are edges, nearly"
    if proposal.tree["sampler"]["method"] == draws.METHOD:
        return "may be wide, since each draw carries its own weight"
    product, fine = width_times_beta(proposal.tree["bins"], proposal.tree["ladder"]["betas"])
    limit = f"{'at most' if fine else 'above'} {WIDTH_TIMES_BETA:g}"
    return f"largest |beta| * width = {product:.2g}, {limit}"


def _round_time(proposal: Proposal) -> str:
    length: Length = proposal.length
    seconds = proposal.seen.rehearsal.seconds * length.exchanges * length.steps
    return duration(seconds) if seconds >= 1 else "a second"


def _sampler(proposal: Proposal) -> str:
    table = {**proposal.tree["sampler"], "exchanges": proposal.length.exchanges}
    a_round = f"a round takes about {_round_time(proposal)} on one process"
    if table["method"] == draws.METHOD:
        return _table("sampler", table, {
            "method": "each text is drawn anew, token by token",
            "walkers": "texts that are drawn at once, per beta",
            "steps": f"draws of a walker in a round; {a_round}",
            "exchanges": "none take place: draws are independent",
        })  # fmt: skip
    if proposal.at_zero:
        return _table("sampler", table, {
            "walkers": "inputs that are drawn in one move",
            "blocks": "of walkers, for up to as many processes",
            "steps": f"moves between two recorded inputs; {a_round}",
            "exchanges": "none take place, with one beta; inputs recorded per round",
        })  # fmt: skip
    return _table("sampler", table, {
        "walkers": "inputs that are moved at once, per beta",
        "steps": "moves between two exchanges of neighbouring betas",
        "exchanges": f"per round; {a_round}",
    })  # fmt: skip


def _ladder(proposal: Proposal) -> list[str]:
    if proposal.at_zero:
        return ["beta = 0: each move draws new random inputs, independent of all others."]
    if proposal.tree["sampler"]["method"] == draws.METHOD:
        return [
            f"At beta each token is drawn from its probability to the power beta / {proposal.m:g}:",
            "beta = 0 draws uniform texts, the last beta the model's own.",
        ]
    if "law" in proposal.tree:
        lines = [
            "Inputs with output z come as often as the law draws them, times exp(-beta z). Without"
        ]
        lines += ["this factor, at beta = 0, inputs are drawn directly, and the density is"]
    else:
        lines = ["Inputs with output z get the weight exp(-beta z). beta = 0 makes the density"]
    if proposal.m is not None:
        lines += [
            f"absolute; beta = m = {proposal.m:g} is the model's own distribution. Both are drawn",
            "directly. The spread of z determines how close the betas lie.",
        ]
        return lines
    lines += [
        "absolute; betas below 0 reach high outputs, those above 0 low ones. The spread of z",
        "determines how close they lie. Why they end: "
        + "; ".join(f"{side} outputs, {end}" for side, end in proposal.ends.items())
        + ".",
        proposal.reach.why or "If the outputs of a test set lie further out, add betas.",
    ]
    return lines


def _kernel(tree: dict[str, Any]) -> str:
    if "kernel" in tree:
        return _table("kernel", tree["kernel"], {"name": KERNELS[tree["kernel"]["name"]]})
    return (
        _comment(
            "No [kernel]: the default, a mixture. from-law redraws parts of an input as beta = 0 "
            "does, metropolis changes single values."
        )
        + "\n"
    )


def _analysis(proposal: Proposal) -> str:
    which = "small" if proposal.side == "low" else "large"
    assumed = " (assumed; if not, change it)" if proposal.tree["model"]["kind"] == "python" else ""
    words = f"{which} outputs are the confident ones{assumed}"
    return _table("analysis", {"side": proposal.side}, {"side": words})


def _table(name: str, values: dict[str, Any], comments: dict[str, str]) -> str:
    """Return a table as TOML, with comments after some keys and each list on one line."""
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    lines = [f"[{name}]"]
    for key, value in values.items():
        if key in tables:
            continue
        line = tomli_w.dumps({key: value}).strip()
        if isinstance(value, list) and not isinstance(value[0], dict):
            line = f"{key} = [{', '.join(_number(one) for one in value)}]"
        lines.append(f"{line:<{COLUMN}} # {comments[key]}" if key in comments else line)
    for key, value in tables.items():
        inner = tomli_w.dumps({name: {key: value}}).strip().removeprefix(f"[{name}]").strip()
        lines += ["", inner]
    return "\n".join(lines) + "\n"


def _number(value: Any) -> str:
    return tomli_w.dumps({"v": value}).partition("=")[2].strip()


def _comment(*lines: str) -> str:
    wrapped = (part for line in lines for part in textwrap.wrap(printable(line), LINE))
    return "\n".join(f"# {part}" for part in wrapped)
