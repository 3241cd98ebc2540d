"""The papers' Toy: sequences of 8 digits whose sum is divisible by 30 (OmniInput, section 3.1).

``python -m omniinput_hpc.zoo.toy`` trains the model, a GPT-2. The rule needs only numpy, so that
``omniinput_hpc.zoo.toy:is_valid`` can score samples on a login node.

The loss is the cross-entropy against the exact distribution of the next digit. It has the same
minimum as the cross-entropy over sampled sequences, without the noise of the sampled digits, so
99.9% validity is reached within minutes on two cores.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from omniinput_zoo import keep_existing, new_parser

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel

log = logging.getLogger("omniinput_hpc.zoo.toy")

N_DIGITS = 8
N_VALUES = 10
DIVISOR = 30
BATCH_SIZE = 512
WARM_UP_STEPS = 300


def is_valid(x: NDArray[np.integer]) -> NDArray[np.float64]:
    """Score inputs by the rule of the Toy: 1 if the sum of the digits is divisible by 30, else 0.

    x are integers [n, 8], 0 to 9; returns float64 [n].
    """
    return np.asarray(x.sum(axis=1, dtype=np.int64) % DIVISOR == 0, dtype=np.float64)


def completions() -> NDArray[np.int64]:
    """Return how many valid completions a prefix of t digits with sum s has, int64 [9, 73]."""
    largest = N_DIGITS * (N_VALUES - 1)
    count_ts = np.zeros((N_DIGITS + 1, largest + 1), dtype=np.int64)
    count_ts[N_DIGITS, ::DIVISOR] = 1
    for t in range(N_DIGITS - 1, -1, -1):
        for s in range(t * (N_VALUES - 1) + 1):
            count_ts[t, s] = count_ts[t + 1, s : s + N_VALUES].sum()
    return count_ts


def next_digit_probabilities() -> NDArray[np.float64]:
    """Return the exact distribution of the next digit of a uniformly drawn valid sequence.

    Entry [t, s, v] of the result, float64 [8, 73, 10], is the probability that digit t is v after t
    digits with sum s, or zero if no valid sequence begins like this.
    """
    count_ts = completions()
    p_tsv = np.zeros((N_DIGITS, count_ts.shape[1], N_VALUES))
    for t in range(N_DIGITS):
        for s in range(t * (N_VALUES - 1) + 1):
            if count_ts[t, s]:
                p_tsv[t, s] = count_ts[t + 1, s : s + N_VALUES] / count_ts[t, s]
    return p_tsv


def build_model(width: int = 32) -> GPT2LMHeadModel:
    """Return the untrained Toy: 6 layers, 4 heads, 10 tokens, 8 positions."""
    from omniinput_zoo.training import build_gpt2

    return build_gpt2(
        0.0, vocab_size=N_VALUES, n_positions=N_DIGITS, n_embd=width, n_layer=6, n_head=4,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip


def draw_prefixes(
    p_tsv: NDArray[np.float64], n: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Draw valid sequences, and return them with the exact distributions of their next digits.

    Half of them follow the uniform distribution over valid sequences. The other half choose each
    digit uniformly among the possible ones, which shows the model the rare sums 0 and 60 as well.
    Returns the sequences, int64 [n, 8], and the distributions of digits 1 to 7 given the digits
    before, float32 [n, 7, 10].
    """
    uniform_tsv = (p_tsv > 0) / np.maximum((p_tsv > 0).sum(axis=2, keepdims=True), 1)
    p_htsv = np.stack([p_tsv, uniform_tsv]).cumsum(axis=3)
    half = np.arange(n) % 2
    x = np.zeros((n, N_DIGITS), dtype=np.int64)
    target = np.zeros((n, N_DIGITS - 1, N_VALUES), dtype=np.float32)
    total = np.zeros(n, dtype=np.int64)
    for t in range(N_DIGITS):
        cumulative = p_htsv[half, t, total]
        u = rng.random((n, 1)) * cumulative[:, -1:]
        x[:, t] = (u >= cumulative).sum(axis=1)
        if t:
            target[:, t - 1] = p_tsv[t, total]
        total += x[:, t]
    return x, target


def share_valid(model: GPT2LMHeadModel, n: int, seed: int) -> float:
    """Generate n sequences with a uniform first digit; return the share of valid ones."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    x = torch.randint(N_VALUES, (n, 1), generator=rng)
    for _ in range(N_DIGITS - 1):
        with torch.no_grad():
            p = model(x, use_cache=False).logits[:, -1].softmax(-1)
        x = torch.cat([x, torch.multinomial(p, 1, generator=rng)], dim=1)
    return float(is_valid(x.numpy()).mean())


def train(
    folder: Path, minutes: float, steps: int, seed: int, width: int, half: bool = False
) -> float:
    """Train for a number of steps, or until the time is over, and save to a folder.

    `half` saves the weights as float16; they are loaded as float32. Returns the share of valid
    sequences among 20,000 generated ones.
    """
    import torch

    from omniinput_zoo.training import cosine_rate, descend

    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = build_model(width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.98), weight_decay=0.01)
    p_tsv = next_digit_probabilities()
    begin = time.monotonic()
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = cosine_rate(step, steps, WARM_UP_STEPS)
        x, target = draw_prefixes(p_tsv, BATCH_SIZE, rng)
        logits = model(torch.from_numpy(x[:, :-1]), use_cache=False).logits
        t = torch.from_numpy(target)
        entropy = -(t * t.clamp_min(1e-30).log()).sum(-1).mean()
        loss = -(t * logits.log_softmax(-1)).sum(-1).mean() - entropy
        descend(loss, optimizer)
        elapsed = time.monotonic() - begin
        if step % 250 == 0 or step == steps - 1:
            share = share_valid(model, 5000, seed)
            log.info(
                "step %d of %d, %.0f s: %.6f nats per digit above the exact entropy, %.2f%% valid",
                step, steps, elapsed, loss.item(), 100 * share,
            )  # fmt: skip
        if elapsed > 60 * minutes:
            log.warning("stopped after %.1f minutes at step %d of %d", elapsed / 60, step, steps)
            break
    if half:
        model.half()
    model.save_pretrained(folder, safe_serialization=True)
    return share_valid(model.float(), 20_000, seed + 1)


def main(arguments: list[str] | None = None) -> int:
    """Run ``python -m omniinput_hpc.zoo.toy``."""
    parser = new_parser("toy", __doc__, "toy")
    parser.add_argument("--steps", type=int, default=18_000)
    parser.add_argument("--minutes", type=float, default=30.0, help="stop after this many")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--half", action="store_true", help="save the weights as float16")
    args = parser.parse_args(arguments)
    keep_existing(args, args.output)

    import torch

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(args.threads)
    share = train(args.output, args.minutes, args.steps, args.seed, args.width, args.half)
    print(f"{100 * share:.2f}% of 20,000 generated sequences are valid; weights in {args.output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
