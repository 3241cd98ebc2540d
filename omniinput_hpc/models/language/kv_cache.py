"""KV cache: evaluate only the positions from a proposal's first changed site on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from omniinput_hpc.models.language.cuda_graphs import GraphCache
from omniinput_hpc.models.language.gpt2_decoder import Decoder

CPU_CHUNK_LOGITS, GPU_CHUNK_LOGITS = 1 << 22, 1 << 26
"""Logits computed at once, whatever V and D. In float32 they take 16 MB on a CPU, to stay in its
cache, and 256 MB on other devices, where each chunk reads the output layer's weights again."""

CPU_LOGITS_AT_ONCE = 1 << 18
"""Logits of shorter types that a CPU converts to float32 at once."""


def chunk_length(like: torch.Tensor, n_logits: int) -> int:
    """Return how many items of n_logits logits each are computed at once, on a tensor's device."""
    return max(1, (CPU_CHUNK_LOGITS if like.is_cpu else GPU_CHUNK_LOGITS) // n_logits)


class KVCache:
    """KV cache of W inputs and of one proposal for each.

    Results equal those of a full forward pass: bit for bit for GPT-2, within rounding for other
    decoders. (With these, a resumed run has the same bits only because the cache is filled again
    after every exchange.) A proposal shares its first t sites with the current input, t the same
    for all W; `accept` then makes it the current input, walker by walker. All memory is allocated
    once.

    The model owns the cache, and all kernels that ask for the same W share it.

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
        kv, hidden = decoder.allocate(n_walkers)  # P + D - 1 positions: the last is only predicted
        shape = (2, n_sites - self._first, n_walkers)
        scores = torch.zeros(shape, device=hidden.device)  # log norms, logits at x
        self._proposed = (kv, hidden, scores)
        self._run_positions: Callable[[torch.Tensor, int], object] = self._work
        if hidden.is_cuda and not decoder.without_graphs:
            buffer = token_ids.new_zeros(hidden.shape[:2])
            self._run_positions = GraphCache(self._work, buffer, written=self._keys_and_values)
        self._current: tuple[torch.Tensor, ...] = ()
        self._dims = ((2, decoder.walker_dim), (0, 1))  # dimensions of positions and walkers
        self._n_shared = 0  # positions before it are equal in both
        self._from = self._at = 0  # the proposal's first and next position
        self.version = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of the proposals, and of the current inputs once they are allocated."""
        held = sum(tensor.nbytes for tensor in (*self._proposed, *self._current))
        return held + self.n_walkers * self._decoder.state_bytes

    @property
    def without_graphs(self) -> str:
        """Why a GPU evaluates without CUDA graphs; "" if it uses them, and on a CPU."""
        why = self._decoder.without_graphs if self._proposed[1].is_cuda else ""
        return str(getattr(self._run_positions, "refusal", why))

    def allocate(self) -> None:
        """Allocate memory for the current inputs now; otherwise the first `accept` does."""
        if not self._current:
            self._current = tuple(torch.zeros_like(new) for new in self._proposed)

    @torch.no_grad()
    def load(self, x: torch.Tensor) -> None:
        """Evaluate inputs, int64 [W, D], and make them current, without their scores."""
        self._begin_whole(x)
        self.accept(None)

    @torch.no_grad()
    def evaluate(self, x: torch.Tensor) -> torch.Tensor:
        """Evaluate inputs, int64 [W, D], and make them current; return z, float32 [W]."""
        self.load(x)
        self._score(x, 0)
        self._current[2].copy_(self._proposed[2])
        return self._z()

    @torch.no_grad()
    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of inputs, int64 [W, D], without making them current."""
        self._begin_whole(x)
        self._score(x, 0)
        return self._z()

    @torch.no_grad()
    def conditional_logits(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and l [W, D, n_values] of inputs [W, D], without making them current."""
        z = self.output(x)
        first, n_positions = max(self._n_before - 1, 0), len(self._proposed[1])
        rows = torch.cat(list(self._rows(self._proposed[1], first, n_positions)))  # [m, W, V]
        if self._first:
            rows = torch.cat([torch.zeros_like(rows[:1]), rows])
        return z, rows.transpose(0, 1)

    @torch.no_grad()
    def propose(self, x: torch.Tensor, t: int) -> torch.Tensor:
        """Evaluate inputs, int64 [W, D], that equal the current ones before site t; return z."""
        self.begin(t)
        tokens = self._fed(x, t)
        if len(tokens):
            self._run(tokens)
        self._score(x, t)
        return self._z()

    def begin(self, t: int) -> None:
        """Begin proposals that equal the current inputs before site t."""
        self._decoder.rewind()
        self._from = self._at = self._n_before + t
        fewer = self._from - self._n_shared
        for current, new, (dim, _) in zip(self._current, self._proposed, self._dims, strict=False):
            if fewer > 0:
                some = (dim, self._n_shared, fewer)
                new.narrow(*some).copy_(current.narrow(*some))
        self._n_shared = self._from

    @torch.no_grad()
    def begin_anew(self) -> None:
        """Begin proposals that share nothing with the current inputs.

        The fixed tokens in front are evaluated again, by themselves: results do not depend on the
        current inputs, which need not exist.
        """
        self._from = self._at = self._n_shared = 0
        if self._n_before:
            self._run(self._before)

    @torch.no_grad()
    def row(self) -> torch.Tensor:
        """Return l of the proposals' next site, [W, n_values]."""
        return self._log_p(self._proposed[1][self._at - 1])

    @torch.no_grad()
    def extend(self, values: torch.Tensor) -> None:
        """Append one value to each proposal, int64 [W]."""
        self._run(self._tokens(values[:, None]))

    @torch.no_grad()
    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """Append values, int64 [W, k]; yield l of the site after each, as [k', W, n_values]."""
        begin = self._at
        self._run(self._tokens(values))
        yield from self._rows(self._proposed[1], begin, self._at)

    @torch.no_grad()
    def current_rows(self, begin: int, end: int) -> Iterator[torch.Tensor]:
        """Yield l of the current inputs at sites begin to end - 1, in parts [k', W, n_values]."""
        offset = self._n_before - 1
        yield from self._rows(self._current[1], offset + begin, offset + end)

    @torch.no_grad()
    def accept(self, accepted: torch.Tensor | None) -> None:
        """Make accepted proposals, bool [W], the current inputs; None: all of them."""
        self.allocate()
        self.version += 1
        some = (self._from, self._at - self._from)
        for current, new, (dim, walker) in zip(
            self._current, self._proposed, self._dims, strict=False
        ):
            _copy_accepted(accepted, new.narrow(dim, *some), current.narrow(dim, *some), walker)
        _copy_accepted(accepted, self._proposed[2], self._current[2], 2)
        if accepted is None:
            self._n_shared = self._at

    def _run(self, tokens: torch.Tensor) -> None:
        """Evaluate tokens, int64 [n, W], at the proposals' next positions."""
        with torch.inference_mode():
            self._run_positions(tokens, self._at)
        self._at += len(tokens)

    def _work(self, tokens: torch.Tensor, begin: int) -> torch.Tensor:
        """Evaluate tokens, int64 [n, W], at positions from `begin` on."""
        kv, hidden, _ = self._proposed
        some = hidden[begin : begin + len(tokens)]
        return some.copy_(self._decoder.run(tokens, begin, kv))

    def _keys_and_values(self, begin: int, n: int) -> torch.Tensor:
        """Return the proposals' keys and values of n positions from `begin` on."""
        return self._proposed[0].narrow(self._dims[0][0], begin, n)

    def _begin_whole(self, x: torch.Tensor) -> None:
        self._from = self._at = self._n_shared = 0
        self._run(torch.cat([self._before, self._fed(x, 0)]))

    def _fed(self, x: torch.Tensor, t: int) -> torch.Tensor:
        """Return the tokens to evaluate from site t of x on: all but the last, int64 [k, W]."""
        return self._tokens(x[:, t:-1])

    def _score(self, x: torch.Tensor, t: int) -> None:
        """Store the proposals' scores at the sites from t on."""
        t, scores = max(t, self._first), self._proposed[2]
        if t > self._first:
            scores[:, : t - self._first] = self._current[2][:, : t - self._first]
        tokens = self._tokens(x)  # [D, W]
        offset = self._n_before - 1
        for begin, end in self._chunks(t, x.shape[1]):
            hidden = self._proposed[1][offset + begin : offset + end]
            logits = self._decoder.head(hidden)  # [k, W, V]
            some = slice(begin - self._first, end - self._first)
            if logits.dtype == torch.float32:
                torch.logsumexp(logits, -1, out=scores[0, some])
                scores[1, some] = logits.gather(2, tokens[begin:end, :, None]).squeeze(2)
            else:  # one pass: less exact than logsumexp, but more exact than such logits
                scores[0, some], scores[1, some] = 0.0, _log_p_of(logits, tokens[begin:end])

    def losses(self) -> torch.Tensor:
        """Return the losses of the predicted sites of inputs that were just evaluated, [W, m]."""
        log_norm, chosen = self._proposed[2]
        losses: torch.Tensor = (log_norm - chosen).T
        return losses

    def _z(self) -> torch.Tensor:
        z: torch.Tensor = self.losses().T.mean(dim=0)
        return z

    def _rows(self, hidden: torch.Tensor, begin: int, end: int) -> Iterator[torch.Tensor]:
        for some_begin, some_end in self._chunks(begin, end):
            yield self._log_p(hidden[some_begin:some_end])

    def _chunks(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        width = chunk_length(self._proposed[1], self.n_walkers * self._decoder.n_vocab)
        for some in range(begin, end, width):
            yield some, min(some + width, end)

    def _log_p(self, hidden: torch.Tensor) -> torch.Tensor:
        log_p = self._decoder.head(hidden).float().log_softmax(-1)
        return log_p if len(self._token_ids) == log_p.shape[-1] else log_p[..., self._token_ids]

    def _tokens(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens, int64 [k, W], of values, int64 [W, k]."""
        return self._token_ids[x.T]


def _log_p_of(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities, float32 [k, W], of tokens, int64 [k, W].

    On a CPU a few rows of the logits, [k, W, V], are computed at once, to stay in its cache.
    """
    n = max(1, CPU_LOGITS_AT_ONCE // logits.shape[-1]) if logits.is_cpu else tokens.numel()
    rows = zip(logits.flatten(0, 1).split(n), tokens.reshape(-1, 1).split(n), strict=True)
    chosen = [row.log_softmax(-1, dtype=torch.float32).gather(1, token) for row, token in rows]
    return torch.cat(chosen).view(tokens.shape)


def _copy_accepted(
    accepted: torch.Tensor | None, new: torch.Tensor, current: torch.Tensor, walker_dim: int
) -> None:
    """Copy accepted proposals over the current inputs."""
    if accepted is None:
        current.copy_(new)
        return
    if current.is_cpu and walker_dim < current.dim() - 1:  # contiguous rows: copy only the accepted
        index = accepted.nonzero()[:, 0]
        if len(index):
            current.index_copy_(walker_dim, index, new.index_select(walker_dim, index))
        return
    shape = [1] * current.dim()
    shape[walker_dim] = -1
    where = accepted.view(shape)
    if current.is_cpu:  # five times as fast; it may spread NaN, which ends the run anyway
        current.lerp_(new, where.to(current.dtype))
    else:
        torch.where(where, new, current, out=current)
