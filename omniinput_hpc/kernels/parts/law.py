"""The law q of inputs: draws of it, ln q(x), and redrawn spans.

q(x) is the product over sites of an autoregressive model's conditional probabilities, raised to
1 / temperature and normalized again. Sites that the model does not predict are uniform. A prompt is
a law of its own for the first sites.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc import rng
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.parts import conditionals
from omniinput_hpc.kernels.parts.categorical import pick
from omniinput_hpc.kernels.parts.spans import Span
from omniinput_hpc.kernels.parts.tempered_rows import draw_scaled, log_sums
from omniinput_hpc.models import Model, offers_of
from omniinput_hpc.models.constraint import Automaton
from omniinput_hpc.models.law import LawParts
from omniinput_hpc.models.outputs.ended import Ended

if TYPE_CHECKING:
    from omniinput_hpc.models.language.kv_cache import KVCache

UNLIKELY = 1e4
"""At most this is -ln of a probability that shapes proposals, so that differences are finite."""
COMPARED = 1 << 24
"""Values of prompts that are compared at once."""
MAX_OFF = 1e-3
"""How far ln of a row's sum may be from 0 if rows must sum to 1."""
RARELY = 7.0
"""-ln of how often gradient kernels propose, at a site, a value that leaves the space."""


def rise(n_values: int) -> float:
    """Return how far -ln q rises for values that leave the space, as proposals see it."""
    return 2.0 * (math.log(n_values) + RARELY)  # joint proposals follow half of it, others all


class Prompt(Protocol):
    """A law of the first `n_sites` sites."""

    n_sites: int

    def draw(self, u: torch.Tensor) -> torch.Tensor:
        """Return draws, int64 [n, P], by uniform numbers u, float64 [n, P]."""
        ...

    def log_q(self, x: torch.Tensor) -> torch.Tensor:
        """Return ln of the probabilities of x, int64 [n, P]: float64 [n], perhaps -inf."""
        ...


class UniformPrompt:
    """All prompts are equally likely; with an `end`, those without this value."""

    def __init__(self, n_values: int, n_sites: int, end: int | None = None) -> None:
        self._n_drawn, self.n_sites, self._end = n_values - (end is not None), n_sites, end

    def draw(self, u: torch.Tensor) -> torch.Tensor:
        """Return draws."""
        x = (u * self._n_drawn).long()
        return x if self._end is None else x + (x >= self._end)

    def log_q(self, x: torch.Tensor) -> torch.Tensor:
        """Return -P ln V, float64 [n]; -inf where the end stands."""
        every = -self.n_sites * math.log(self._n_drawn)
        log_q = torch.full((len(x),), every, dtype=torch.float64, device=x.device)
        if self._end is None:
            return log_q
        return log_q.masked_fill_((x == self._end).any(dim=1), -torch.inf)


class PromptRows:
    """The rows of a file, int64 [N, P], drawn with replacement."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.drawn, self.n_sites = rows, rows.shape[1]
        self.rows, counts = rows.unique(dim=0, return_counts=True)
        self._log_share = (counts.double() / len(rows)).log()

    def draw(self, u: torch.Tensor) -> torch.Tensor:
        """Return draws: the first uniform number of each picks a row."""
        return self.drawn[(u[:, 0] * len(self.drawn)).long()]

    def log_q(self, x: torch.Tensor) -> torch.Tensor:
        """Return ln of the share of rows that equal x, float64 [n]; -inf if none does."""
        parts, width = [], max(1, COMPARED // self.rows.numel())
        for begin in range(0, len(x), width):
            same = (x[begin : begin + width, None] == self.rows).all(dim=2)  # [n, N]
            parts.append(torch.where(same, self._log_share, -torch.inf).amax(dim=1))
        return torch.cat(parts)


class ModelPrompt:
    """Texts that a model of the first sites draws."""

    def __init__(self, model: Model) -> None:
        self._law, self.n_sites = Law(model), model.n_sites

    def draw(self, u: torch.Tensor) -> torch.Tensor:
        """Return draws."""
        return self._law.draw(u)

    def log_q(self, x: torch.Tensor) -> torch.Tensor:
        """Return ln of their probabilities, float64 [n]."""
        return self._law.log_q_sites(x, None).sum(dim=1)


class Law:
    """The law that a model's conditionals define.

    Parameters
    ----------
    model : has ``conditional_logits``
    temperature : of its rows; at 1 they are used as they are, and must sum to 1, unless the model
        leaves out tokens
    prompt : the law of the first sites; None: the sites before `predicted_from` are uniform
    gives_z : whether the run's z is this model's own loss, so that ln q(x) follows from z; it does
        not if texts end, whatever is given

    Attributes
    ----------
    automaton : which inputs exist, if texts end; None if all do
    normalizes : whether rows are divided by their sums
    separate : whether changes of single sites may not connect the prompts

    Raises a `UserError` if the model has no conditionals, or if texts may end in a prompt.
    """

    automaton: Automaton | None = None

    def __init__(
        self,
        model: Model,
        temperature: float = 1.0,
        prompt: Prompt | None = None,
        gives_z: bool = False,
    ) -> None:
        remedy = "give law.kind a model that has them"
        self._conditional_logits = conditionals.require_conditionals(model, "[law]", remedy)
        self.model, self.offers = model, offers_of(model)
        self.n_sites, self.n_values = model.n_sites, model.n_values
        first, self._ended = self.offers.predicted_from, model if isinstance(model, Ended) else None
        uniform = UniformPrompt(self.n_values, first, end_of(model))
        self.prompt: Prompt = uniform if prompt is None else prompt
        self.n_prompt = self.prompt.n_sites
        self.separate = isinstance(prompt, PromptRows) and min(prompt.rows.shape) > 1
        if self.n_prompt > self.n_sites:
            raise UserError(
                f"law.prompt.sites = {self.n_prompt}: inputs have only {self.n_sites} sites"
            )
        if self._ended is not None and self.n_prompt < first:
            raise UserError(
                f"law.prompt.sites = {self.n_prompt}: with space.end a prompt must reach up to the "
                f"first predicted site, {first}"
            )
        self._first = max(first, self.n_prompt)
        self._log_uniform = (self.n_prompt - self._first) * math.log(self.n_values)
        self._b, self._predicted = 1.0 / temperature, self.n_sites - first
        whole = getattr(getattr(model, "base", model), "whole_rows", True)
        self.normalizes = temperature != 1.0 or not whole
        self._plain = not self.normalizes and self._first == first and self._ended is None
        self.gives_z = gives_z and self._plain and prompt is None

    def kv_cache(self, current: KVCache | None, n_walkers: int) -> KVCache | None:
        """Return a KV cache for `redraw`, `current` if it fits; None if the model has none."""
        return conditionals.kv_cache_of(self.offers, current, n_walkers)

    def draw(self, u: torch.Tensor) -> torch.Tensor:
        """Return independent draws of whole inputs, int64 [n, D], by u, float64 [n, D]."""
        return self.draw_with_log_q(u)[0]

    def draw_with_log_q(self, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return independent draws, int64 [n, D], and the terms of their ln q, float64 [n, D]."""
        x = torch.zeros_like(u, dtype=torch.int64)
        log_q = torch.zeros_like(u)
        if self.offers.draws is not None:
            cache = self.offers.draws.kv_cache(len(x))
            cache.begin_anew()
            self._fill(x, log_q, cache, Span(0, 0, self.n_sites), u)
        else:
            rows = conditionals.begin_anew(self.offers, x)
            self._fill(x, log_q, rows, Span(0, 0, self.n_sites), u)
        return x, log_q

    def log_q(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Return ln q of inputs x, int64 [W, D], whose outputs are z [W]: float64 [W]."""
        if not self._plain:
            return self.log_q_sites(x, None).sum(dim=1)
        loss = z if self.gives_z else self.model.output(x)
        return self._log_q_first(x) - self._predicted * loss.double()

    def _log_q_first(self, x: torch.Tensor) -> torch.Tensor:
        """Return ln q of the sites before the first row: the prompt's, and uniform ones."""
        return self.prompt.log_q(x[:, : self.n_prompt]) + self._log_uniform

    @torch.no_grad()
    def loss_error(self, n: int, device: str) -> float:
        """Return how far the output is from the loss by the rows; 0 if ln q does not use it.

        It is the largest difference over n random inputs, relative where the loss is above 1.
        """
        if not self._plain:
            return 0.0
        size = n, self.n_sites
        values = rng.generator(0, "fingerprint", *size).integers(self.n_values, size=size)
        x = torch.from_numpy(values).to(device)
        loss = self.loss(self.log_q_sites(x, None))
        off = (self.model.output(x).double() - loss).abs() / loss.abs().clamp(min=1.0)
        return float(off.nan_to_num(nan=0.0).max())  # inf - inf: impossible by both

    def loss(self, log_q: torch.Tensor) -> torch.Tensor:
        """Return the law's mean loss, float64 [W], given the terms of ln q, [W, D]."""
        return -log_q[:, self._first :].sum(dim=1) / self._predicted

    @property
    def beta(self) -> float:
        """The exponent of the law's own loss, if that is z: q(x) is exp(-beta z) / V^f."""
        return float(self._predicted)

    def gradient(self, x: torch.Tensor) -> torch.Tensor:
        """Return about -d ln q / d one_hot(x), float32 [W, D, n_values].

        It shapes proposals only: that temperature normalizes rows, and the prompt, are left out.
        Without a gradient of the law's model these are its rows: how likely a value is after those
        before it, without its effect on those that follow.
        """
        if self.offers.output_and_gradient is None or self.offers.without_gradient():
            rows = self._conditional_logits(x)[1].float() * -self._b
            rows[:, : self._first] = 0.0
            return rows.clamp_(max=UNLIKELY)
        g = self.offers.output_and_gradient(x)[1]  # perhaps the model's own tensor
        if self._ended is None:
            return g * (self._predicted * self._b)
        g = g * (self._ended.n_own(x)[:, None, None] * self._b)
        over = self._ended.is_over(x)
        other = torch.arange(self.n_values, device=x.device) != self._ended.end
        return g.masked_fill_(over[..., None] & other, rise(self.n_values))

    def widened(self, span: Span) -> Span:
        """Return a span that holds the first sites, up to the prompt's end, as a whole or not."""
        if span.begin >= self.n_prompt:
            return span
        return Span(span.part, 0, max(span.end, self.n_prompt))

    def log_q_sites(self, x: torch.Tensor, kv_cache: KVCache | None) -> torch.Tensor:
        """Return the terms of ln q(x), float64 [W, D], of inputs int64 [W, D].

        That of all sites before the first row stands at the first site. The inputs become the
        current ones of `kv_cache`, if one is given.
        """
        log_q = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        if self.n_prompt:
            log_q[:, 0] = self._log_q_first(x)
        blocks = conditionals.rows_of(self._conditional_logits, kv_cache, x, self._first)
        self._add(log_q, blocks, x, self._first)
        return log_q

    def redraw(
        self,
        x: torch.Tensor,
        log_q: torch.Tensor,
        span: Span,
        u: torch.Tensor,
        kv_cache: KVCache | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Redraw a span of inputs x, int64 [W, D], from q given the sites before it.

        Returns the new inputs and their terms of ln q, given the old terms, `log_q` [W, D].
        u is float64 [W, length of the span]. `kv_cache`, if given, holds x.
        """
        x_new, log_q_new = x.clone(), log_q.clone()
        rows = conditionals.begin(self._conditional_logits, kv_cache, x, span.begin)
        self._fill(x_new, log_q_new, rows, span, u)
        if span.end < self.n_sites:
            blocks = rows.rows_after(x_new[:, span.end - 1 : -1])
            self._add(log_q_new, blocks, x_new, span.end)
        return x_new, log_q_new

    def _fill(
        self,
        x: torch.Tensor,
        log_q: torch.Tensor,
        rows: conditionals.Conditionals | conditionals.ByPrefixes,
        span: Span,
        u: torch.Tensor,
    ) -> None:
        """Draw the sites of a span in place, with their terms of ln q; `rows` begin there.

        A term is NaN if its row is, or if it must sum to 1 and does not.
        """
        b = torch.full((len(x),), self._b, dtype=torch.float64, device=x.device)
        n_prompt = self.n_prompt
        if span.begin == 0 and n_prompt:
            x[:, :n_prompt] = self.prompt.draw(u[:, :n_prompt])
            log_q[:, 0] = self._log_q_first(x)
        for t in range(span.begin, span.end):
            if t >= n_prompt:
                if t < self._first:
                    x[:, t] = (u[:, t - span.begin] * self.n_values).long()
                else:
                    row = rows.row()
                    value, log_sum = draw_scaled(row, b, u[:, t - span.begin])
                    x[:, t] = value.clamp_(max=self.n_values - 1)  # of NaN it may be any
                    term = self._term(pick(row, x[:, t]), log_sum)
                    if not self.normalizes:
                        term = term.masked_fill_(log_sum.abs() > MAX_OFF, torch.nan)
                    log_q[:, t] = term
            if t + 1 < span.end:
                rows.extend(x[:, t])

    def _add(
        self, log_q: torch.Tensor, blocks: Iterator[torch.Tensor], x: torch.Tensor, t: int
    ) -> None:
        """Write the terms of predicted sites from t on, given their rows in blocks [k, W, V]."""
        b = torch.full((len(x),), self._b, dtype=torch.float64, device=x.device)
        for rows in blocks:
            begin, t = t, t + len(rows)
            skipped = max(self._first - begin, 0)
            if skipped < len(rows):
                some, rows = slice(begin + skipped, t), rows[skipped:]
                log_sum = log_sums(rows, b) if self.normalizes else None
                log_q[:, some] = self._term(pick(rows, x[:, some].T), log_sum).T

    def _term(self, log_p: torch.Tensor, log_sum: torch.Tensor | None) -> torch.Tensor:
        """Return l / temperature - ln of the sum over values; l itself if rows sum to 1."""
        if not self.normalizes or log_sum is None:
            return log_p.double()
        return self._b * log_p.double() - log_sum


def end_of(model: Model) -> int | None:
    """Return the value that ends a model's texts; None if they have a fixed length."""
    return model.end if isinstance(model, Ended) else None


@torch.no_grad()
def marks(law: Law, x_nd: NDArray[np.unsignedinteger], device: str) -> dict[str, Any]:
    """Return numbers of a law that are stored, to notice another one, and a hash of its prompts.

    They are ln q of the inputs x, [n, D], without the sites at which it is -inf: float64 [n].
    """
    terms = law.log_q_sites(torch.from_numpy(x_nd.astype(np.int64)).to(device), None)
    found: dict[str, Any] = {"law_log_q": terms.nan_to_num(neginf=0.0).sum(dim=1).cpu().numpy()}
    if isinstance(law.prompt, PromptRows):
        rows = law.prompt.drawn.cpu().numpy()
        found["law_prompts"] = f"sha256:{hashlib.sha256(rows.tobytes()).hexdigest()}"
    return found


@torch.no_grad()
def probabilities(
    law: Law, x_nd: NDArray[np.int64], z_n: NDArray[np.float32], batch: int, device: str
) -> NDArray[np.float64]:
    """Return q of inputs, int64 [n, D], whose outputs are z [n]: float64 [n]."""
    parts = []
    for begin in range(0, len(x_nd), batch):
        some = slice(begin, begin + batch)
        x, z = (torch.from_numpy(array[some]).to(device) for array in (x_nd, z_n))
        parts.append(law.log_q(x, z).exp().cpu().numpy())
    return np.concatenate(parts)


def of_parts(parts: LawParts, device: str, gives_z: bool) -> Law:
    """Return the law that consists of `parts`; `gives_z` as for `Law`.

    Raises a `UserError` if a model has no conditionals.
    """
    prompt: Prompt | None = None
    if isinstance(parts.prompt, int):
        prompt = UniformPrompt(parts.model.n_values, parts.prompt, end_of(parts.model))
    elif isinstance(parts.prompt, np.ndarray):
        prompt = PromptRows(torch.from_numpy(parts.prompt).to(device))
    elif parts.prompt is not None:
        prompt = ModelPrompt(parts.prompt)
    return Law(parts.model, parts.temperature, prompt, gives_z)
