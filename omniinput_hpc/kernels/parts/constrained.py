"""The uniform law over the inputs of a constrained space: exact draws, ln q(x), redrawn spans.

An input is drawn site by site: a value is as likely as the number of ways to complete the input
after it (a transfer matrix), so that all inputs of the space are equally likely. Others have
probability 0, which keeps every kernel inside.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from omniinput_hpc.kernels.parts.law import Law, rise
from omniinput_hpc.kernels.parts.spans import Span
from omniinput_hpc.models.constraint import Automaton

MAX_DRAWN = 1 << 22
"""Probabilities of values that are held at once."""


class UniformInside:
    """A law as `Law` is, q(x) = 1 / N for the N inputs that an automaton accepts, else 0."""

    gives_z = False

    def __init__(self, automaton: Automaton, device: str) -> None:
        self.automaton, self.n_sites = automaton, automaton.n_sites
        self._log_n = math.log(automaton.n_inputs)
        self._next = torch.from_numpy(automaton.next_qv).to(device)  # [Q + 1, V]
        self._accepts = torch.from_numpy(automaton.accepting_q).to(device)
        self._log_ways = torch.from_numpy(automaton.log_ways).to(device)  # [D + 1, Q + 1]
        self._by_site, given = automaton.by_site, automaton.allowed_iv
        if self._by_site:  # the state is 0 inside
            every = np.ones((self.n_sites, 1), dtype=np.bool_) if given is None else given
            given = every & (automaton.next_qv[0] == 0)
        self._allowed = None if given is None else torch.from_numpy(given).to(device)  # [D, V]
        self._table: torch.Tensor | None = None  # [D, Q + 1, V]
        if self.n_sites * self._next.numel() <= MAX_DRAWN:
            states = torch.arange(len(self._next), device=device)
            self._table = torch.stack([self._cumulative(states, t) for t in range(self.n_sites)])

    def draw(self, u: torch.Tensor) -> torch.Tensor:
        """Return independent draws of whole inputs, int64 [n, D], by u, float64 [n, D]."""
        x, log_q = torch.zeros_like(u, dtype=torch.int64), torch.zeros_like(u)
        self._fill(x, log_q, x.new_zeros(len(x)), Span(0, 0, self.n_sites), u)
        return x

    def log_q(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Return -ln N, or -inf outside, of inputs x, int64 [W, D]: float64 [W]."""
        inside = self._accepts[self._state(x, self.n_sites)]
        if self._allowed is not None:
            site = torch.arange(self.n_sites, device=x.device)
            inside &= self._allowed[site, x].all(dim=1)
        return inside.double().log() - self._log_n

    def gradient(self, x: torch.Tensor) -> torch.Tensor:
        """Return 0 for values that one site of x may take, else `rise`: float32 [W, D, V].

        It shapes proposals, so that few leave the space. Some must: a kernel that changes several
        sites may pass through inputs outside.
        """
        outside = torch.empty((*x.shape, self._next.shape[1]), device=x.device)
        states = [x.new_zeros(len(x))]
        for t in range(self.n_sites - 1):
            states.append(self._next[states[t], x[:, t]].long())
        accepts = self._accepts.expand(len(x), -1)  # from each state, given the sites that follow
        for t in reversed(range(self.n_sites)):
            outside[:, t] = (~accepts.gather(1, self._next[states[t]].long())).float()
            accepts = accepts.gather(1, self._next[:, x[:, t]].T.long())
        if self._allowed is not None:
            outside.masked_fill_(~self._allowed, 1.0)
        return outside.mul_(rise(outside.shape[2]))

    def widened(self, span: Span) -> Span:
        """Return the span as it is: a constrained space has no prompt."""
        return span

    def kv_cache(self, current: None, n_walkers: int) -> None:
        """Return None: no model is evaluated."""

    def log_q_sites(self, x: torch.Tensor, kv_cache: None) -> torch.Tensor:
        """Return the terms of ln q(x), float64 [W, D], of inputs int64 [W, D]."""
        log_q = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        self._add(log_q, x, x.new_zeros(len(x)), 0)
        return log_q

    def redraw(
        self, x: torch.Tensor, log_q: torch.Tensor, span: Span, u: torch.Tensor, kv_cache: None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Redraw a span of inputs from q given the sites before it (see `Law.redraw`)."""
        x_new, log_q_new = x.clone(), log_q.clone()
        state = self._fill(x_new, log_q_new, self._state(x, span.begin), span, u)
        self._add(log_q_new, x_new, state, span.end)
        return x_new, log_q_new

    def _state(self, x: torch.Tensor, end: int) -> torch.Tensor:
        """Return the state after the first `end` sites, int64 [W]."""
        state = x.new_zeros(len(x))
        for t in range(0 if self._by_site else end):
            state = self._next[state, x[:, t]].long()
        return state

    def _fill(
        self, x: torch.Tensor, log_q: torch.Tensor, state: torch.Tensor, span: Span, u: torch.Tensor
    ) -> torch.Tensor:
        """Draw the sites of a span in place, with their terms; return the state after them."""
        for t in range(span.begin, span.end):
            x[:, t] = self._draw(state, t, u[:, t - span.begin])
            state, log_q[:, t] = self._after(x[:, t], state, t)
        return state

    def _draw(self, state: torch.Tensor, t: int, u: torch.Tensor) -> torch.Tensor:
        """Return a value of site t for each walker, int64 [W], given the states before it.

        If no value leads on from a state, the last one is returned.
        """
        n_values = self._next.shape[1]
        drawn, width = [], max(1, MAX_DRAWN // n_values)
        for begin in range(0, len(state), width):
            here = state[begin : begin + width]
            rows = self._cumulative(here, t) if self._table is None else self._table[t, here]
            total = rows[:, -1:]
            # Below the sum of all, so that no value of weight 0 is drawn after the last possible
            below = torch.nextafter(total, torch.zeros_like(total))
            target = torch.minimum(u[begin : begin + width, None] * total, below)
            value = torch.searchsorted(rows, target, right=True)[:, 0]
            drawn.append(value.clamp_(max=n_values - 1))
        return torch.cat(drawn)

    def _cumulative(self, state: torch.Tensor, t: int) -> torch.Tensor:
        """Return the cumulative probabilities of the values of site t, [n, V], by states [n]."""
        log_p = self._log_ways[t + 1][self._next[state].long()]
        if self._allowed is not None:
            log_p.masked_fill_(~self._allowed[t], -torch.inf)
        return (log_p - self._log_ways[t, state][:, None]).exp_().cumsum(dim=1)

    def _add(self, log_q: torch.Tensor, x: torch.Tensor, state: torch.Tensor, t: int) -> None:
        """Write the terms of the sites from t on, given the states before site t."""
        if self._by_site and self._allowed is not None:
            inside = self._allowed[torch.arange(t, self.n_sites, device=x.device), x[:, t:]]
            log_p = self._log_ways[t + 1 :, 0] - self._log_ways[t:-1, 0]
            log_q[:, t:] = torch.where(inside, log_p, -torch.inf)
            return
        for s in range(t, self.n_sites):
            state, log_q[:, s] = self._after(x[:, s], state, s)

    def _after(
        self, value: torch.Tensor, state: torch.Tensor, t: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states after values at site t, and their terms of ln q, float64 [W]."""
        new = self._next[state, value].long()
        ways, ways_new = self._log_ways[t, state], self._log_ways[t + 1, new]
        possible = ways > -torch.inf
        if self._allowed is not None:
            possible &= self._allowed[t, value]
        return new, torch.where(possible, ways_new - ways, -torch.inf)


InputLaw = Law | UniformInside
"""What inputs are weighed by."""
