"""KV cache: W inputs are evaluated once; of a proposal, only what follows the first change is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from omniinput_hpc.models.language.cuda_graphs import GraphCache
from omniinput_hpc.models.language.gpt2_decoder import Decoder

CHUNK, CHUNK_ELSEWHERE = 1 << 21, 1 << 26
"""Logits that are worked on at once, whatever V and D: 8 MB in float32 on a CPU, whose cache they
stay in; 256 MB elsewhere, where the output layer's weights are read again for each chunk."""


class KVCache:
    """KV cache of W inputs and of one proposal for each.

    Results equal a full forward pass: bit for bit for GPT-2, within rounding for other decoders
    (which is why a run's bits are the same after a resume only because the cache is filled anew
    after every exchange). A proposal shares its first t sites with the current input, t the same
    for all W; `accept` then makes it the current input, walker by walker. All memory is allocated
    once.

    The model owns the cache, and all kernels that ask for as many inputs share it.

    Parameters
    ----------
    decoder, token_ids : of the language model
    before : int64 [P], fixed tokens in front of every input
    n_sites : D
    n_walkers : W

    Attributes
    ----------
    n_walkers : int, W
    version : int, incremented whenever the cache changes; a kernel compares it to see whether
        another kernel has replaced its inputs
    """

    def __init__(
        self,
        decoder: Decoder,
        token_ids: torch.Tensor,
        before: torch.Tensor,
        n_sites: int,
        n_walkers: int,
    ) -> None:
        self._decoder, self._token_ids, self.n_walkers = decoder, token_ids, n_walkers
        self._before, self._n_before = before[:, None].expand(-1, n_walkers), len(before)
        self._first = 0 if self._n_before else 1
        kv, hidden = decoder.memory(n_walkers)  # of P + D - 1: the last token is only predicted
        shape = (2, n_sites - self._first, n_walkers)
        scores = torch.zeros(shape, device=hidden.device)  # log norms, logits at x
        self._new = (kv, hidden, scores)
        self._evaluate: Callable[[torch.Tensor, int], object] = self._work
        if hidden.is_cuda:
            self._evaluate = GraphCache(self._work, token_ids.new_zeros(hidden.shape[:2]))
        self._kept: tuple[torch.Tensor, ...] = ()
        self._dims = ((2, decoder.walker_dim), (0, 1))  # of positions and walkers
        self._same = 0  # positions before it are alike in both
        self._from = self._at = 0  # where the proposal begins, and how far it has come
        self.version = 0

    @property
    def n_bytes(self) -> int:
        """What the room takes, of what is kept and of the proposals."""
        return 2 * sum(new.nbytes for new in self._new)

    def reserve(self) -> None:
        """Take the room for what is kept now; else `accept` takes it."""
        if not self._kept:
            self._kept = tuple(torch.zeros_like(new) for new in self._new)

    @torch.no_grad()
    def load(self, x: torch.Tensor) -> None:
        """Evaluate inputs, int64 [W, D], and keep them, but for their scores."""
        self._begin_whole(x)
        self.accept(None)

    @torch.no_grad()
    def evaluate(self, x: torch.Tensor) -> torch.Tensor:
        """Evaluate inputs, int64 [W, D], and keep them; return z, float32 [W]."""
        self.load(x)
        self._score(x, 0)
        self._kept[2].copy_(self._new[2])
        return self._z()

    @torch.no_grad()
    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of inputs, int64 [W, D]; they are not kept."""
        self._begin_whole(x)
        self._score(x, 0)
        return self._z()

    @torch.no_grad()
    def conditional_logits(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and l [W, D, n_values] of inputs [W, D] that are not kept."""
        z = self.output(x)
        first, n_positions = max(self._n_before - 1, 0), len(self._new[1])
        rows = torch.cat(list(self._rows(self._new[1], first, n_positions)))  # [m, W, V]
        if self._first:
            rows = torch.cat([torch.zeros_like(rows[:1]), rows])
        return z, rows.transpose(0, 1)

    @torch.no_grad()
    def propose(self, x: torch.Tensor, t: int) -> torch.Tensor:
        """Evaluate inputs, int64 [W, D], that agree with the kept ones before site t; return z."""
        self.begin(t)
        if t < x.shape[1] - 1:
            self._run(self._tokens(x[:, t:-1]))
        self._score(x, t)
        return self._z()

    def begin(self, t: int) -> None:
        """Begin proposals that agree with what is kept before site t."""
        self._from = self._at = self._n_before + t
        fewer = self._from - self._same
        for kept, new, (place, _) in zip(self._kept, self._new, self._dims, strict=False):
            if fewer > 0:
                new.narrow(place, self._same, fewer).copy_(kept.narrow(place, self._same, fewer))
        self._same = self._from

    @torch.no_grad()
    def row(self) -> torch.Tensor:
        """Return l of the proposals' next site, [W, n_values]."""
        return self._log_p(self._new[1][self._at - 1])

    @torch.no_grad()
    def extend(self, values: torch.Tensor) -> None:
        """Append one value to each proposal, int64 [W]."""
        self._run(self._tokens(values[:, None]))

    @torch.no_grad()
    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """Append values, int64 [W, k]; yield l of the sites after each, some [k', W, V] a time."""
        begin = self._at
        self._run(self._tokens(values))
        yield from self._rows(self._new[1], begin, self._at)

    @torch.no_grad()
    def current_rows(self, begin: int, end: int) -> Iterator[torch.Tensor]:
        """Yield l at what is kept, of sites begin to end - 1, some [k', W, n_values] a time."""
        place = self._n_before - 1
        yield from self._rows(self._kept[1], place + begin, place + end)

    @torch.no_grad()
    def accept(self, accepted: torch.Tensor | None) -> None:
        """Keep the proposals of walkers that are accepted, bool [W]; None: of all."""
        self.reserve()
        self.version += 1
        some = (self._from, self._at - self._from)
        for kept, new, (place, walker) in zip(self._kept, self._new, self._dims, strict=False):
            _take(accepted, new.narrow(place, *some), kept.narrow(place, *some), walker)
        _take(accepted, self._new[2], self._kept[2], 2)
        if accepted is None:
            self._same = self._at

    def _run(self, tokens: torch.Tensor) -> None:
        """Evaluate tokens, int64 [n, W], at the proposals' next positions."""
        with torch.inference_mode():
            self._evaluate(tokens, self._at)
        self._at += len(tokens)

    def _work(self, tokens: torch.Tensor, begin: int) -> torch.Tensor:
        """Evaluate tokens, int64 [n, W], at positions from `begin` on."""
        kv, hidden, _ = self._new
        some = hidden[begin : begin + len(tokens)]
        return some.copy_(self._decoder.run(tokens, begin, kv))

    def _begin_whole(self, x: torch.Tensor) -> None:
        self._from = self._at = self._same = 0
        self._run(torch.cat([self._before, self._tokens(x)[:-1]]))

    def _score(self, x: torch.Tensor, t: int) -> None:
        """Write down the proposals' scores at the sites from t on."""
        t, scores = max(t, self._first), self._new[2]
        if t > self._first:
            scores[:, : t - self._first] = self._kept[2][:, : t - self._first]
        tokens = self._tokens(x)  # [D, W]
        place = self._n_before - 1
        for begin, end in self._chunks(t, x.shape[1]):
            hidden = self._new[1][place + begin : place + end]
            logits = self._decoder.head(hidden).float()  # [k, W, V]
            some = slice(begin - self._first, end - self._first)
            torch.logsumexp(logits, -1, out=scores[0, some])
            scores[1, some] = logits.gather(2, tokens[begin:end, :, None]).squeeze(2)

    def _z(self) -> torch.Tensor:
        log_norm, chosen = self._new[2]
        z: torch.Tensor = (log_norm - chosen).mean(dim=0)
        return z

    def _rows(self, hidden: torch.Tensor, begin: int, end: int) -> Iterator[torch.Tensor]:
        for some_begin, some_end in self._chunks(begin, end):
            yield self._log_p(hidden[some_begin:some_end])

    def _chunks(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        most = CHUNK if self._new[1].is_cpu else CHUNK_ELSEWHERE
        width = max(1, most // (self.n_walkers * self._decoder.n_vocab))
        for some in range(begin, end, width):
            yield some, min(some + width, end)

    def _log_p(self, hidden: torch.Tensor) -> torch.Tensor:
        log_p = self._decoder.head(hidden).float().log_softmax(-1)
        return log_p if len(self._token_ids) == log_p.shape[-1] else log_p[..., self._token_ids]

    def _tokens(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens of values, int64 [W, k]: [k, W]."""
        return self._token_ids[x.T]


def _take(
    accepted: torch.Tensor | None, new: torch.Tensor, kept: torch.Tensor, walker_dim: int
) -> None:
    """Write what is new over what is kept, where accepted."""
    if accepted is None:
        kept.copy_(new)
        return
    if kept.is_cpu and walker_dim < kept.dim() - 1:  # rows that lie together: only what changes
        index = accepted.nonzero()[:, 0]
        if len(index):
            kept.index_copy_(walker_dim, index, new.index_select(walker_dim, index))
        return
    shape = [1] * kept.dim()
    shape[walker_dim] = -1
    where = accepted.view(shape)
    if kept.is_cpu:  # five times as fast there; what is not finite in either ends the run anyway
        kept.lerp_(new, where.to(kept.dtype))
    else:
        torch.where(where, new, kept, out=kept)
