"""The inputs of a constrained space: an automaton over values, and how many inputs it accepts.

``space.pattern`` is a regular expression over the text of an input. It becomes an automaton over
bytes, and this one over values, since a token may be a part of a character. Lists in
``space.allowed`` say which values each site may take. With ``space.canonical`` neighbours must be
possible pairs of the tokenizer. Importing this module does not import torch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from omniinput_hpc.config import CausalLm, Config
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import canonical, hf_folder, tokenizer
from omniinput_hpc.models.language.tokenizer import Vocabulary
from omniinput_hpc.models.protocol import space_of
from omniinput_hpc.models.table import KINDS
from omniinput_hpc.text import first_line

MAX_TRANSITIONS = 1 << 27
"""The largest table of transitions: 512 MiB."""
MAX_PAIRS = 1 << 24
"""The most pairs of values that are tried with a tokenizer: 16 million take some minutes."""
N_DRAWN = 4096
"""Inputs that are drawn to estimate which share of a space is canonical."""
SHARE = ("canonical_share", "canonical_share_low", "canonical_share_high")
"""What the run file calls this share and the ends of its 95 % interval."""
N_BYTES, BEFORE = 256, 0
"""A byte that stands before every text: the library builds no pattern that may match nothing."""


Table = tuple[NDArray[np.int32], NDArray[np.bool_]]
"""The states after each value, and which states accept, as in `Automaton`."""


@dataclass(frozen=True, eq=False)
class Automaton:
    """Which inputs exist: those that lead from state 0 to an accepting state.

    Attributes
    ----------
    next_qv : int32 [Q + 1, V], the state after each value; the last state, Q, is dead
    accepting_q : bool [Q + 1]
    allowed_iv : bool [D, V], the values of each site; None: all
    n_sites : D
    end : the value that ends texts; None if they have a fixed length
    is_canonical : whether inputs, [n, D], are canonical, bool [n]; None: not asked, or all are
    """

    next_qv: NDArray[np.int32]
    accepting_q: NDArray[np.bool_]
    allowed_iv: NDArray[np.bool_] | None
    n_sites: int
    end: int | None = None
    is_canonical: Callable[[NDArray[np.int64]], NDArray[np.bool_]] | None = None

    @property
    def by_site(self) -> bool:
        """Whether each site takes its values independently of the others."""
        return len(self.next_qv) == 2

    @cached_property
    def _ways(self) -> list[list[int]]:
        """The exact numbers of ways to accept from a state, by sites before it: [D + 1][Q + 1]."""
        ways = [[int(accepts) for accepts in self.accepting_q]]
        known: dict[bytes, list[list[tuple[int, int]]]] = {}
        for i in reversed(range(self.n_sites)):
            here = None if self.allowed_iv is None else self.allowed_iv[i]
            key = b"" if here is None else here.tobytes()
            if key not in known:
                known[key] = _steps(self.next_qv if here is None else self.next_qv[:, here])
            after = ways[-1]
            ways.append([sum(n * after[to] for to, n in steps) for steps in known[key]])
        return ways[::-1]

    @property
    def n_inputs(self) -> int:
        """The exact number of inputs."""
        return self._ways[0][0]

    @property
    def log_ways(self) -> NDArray[np.float64]:
        """Ln of the number of ways to accept from a state, float64 [D + 1, Q + 1]."""
        return np.array([[math.log(n) if n else -math.inf for n in row] for row in self._ways])

    def contains(self, x_nd: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether inputs of values, [n, D], exist, bool [n]."""
        state = np.zeros(len(x_nd), dtype=np.int32)
        for x_n in x_nd.T:
            state = self.next_qv[state, x_n]
        inside = self.accepting_q[state]
        if self.allowed_iv is not None:
            inside &= self.allowed_iv[np.arange(self.n_sites), x_nd].all(axis=1)
        return np.asarray(inside)

    def attributes(self) -> dict[str, Any]:
        """Return what the run file stores of it."""
        digest = hashlib.sha256(self.next_qv.tobytes() + self.accepting_q.tobytes())
        digest.update(b"" if self.allowed_iv is None else self.allowed_iv.tobytes())
        # Unlike str(int), Decimal has no limit of digits
        n_inputs = {"n_inputs": str(Decimal(self.n_inputs)), "log_inputs": math.log(self.n_inputs)}
        share = dict(zip(SHARE, self.canonical_share, strict=True)) if self.is_canonical else {}
        return {**n_inputs, **share, "space_fingerprint": f"sha256:{digest.hexdigest()}"}

    def draw(self, random: np.random.Generator, n: int) -> NDArray[np.int64]:
        """Return independent uniform draws of inputs, int64 [n, D]."""
        log_ways, n_values = self.log_ways, self.next_qv.shape[1]
        x, state = np.empty((n, self.n_sites), dtype=np.int64), np.zeros(n, dtype=np.int32)
        for t in range(self.n_sites):
            for q in np.unique(state):
                with np.errstate(invalid="ignore"):
                    p = np.exp(log_ways[t + 1, self.next_qv[q]] - log_ways[t, q])
                p = p if self.allowed_iv is None else p * self.allowed_iv[t]
                here = state == q
                x[here, t] = random.choice(n_values, here.sum(), p=p / p.sum())
            state = self.next_qv[state, x[:, t]]
        return x

    @cached_property
    def canonical_share(self) -> tuple[float, float, float]:
        """The share of inputs that are canonical, with its 95 % interval, from draws."""
        assert self.is_canonical is not None
        x = self.draw(np.random.default_rng(0), N_DRAWN)
        k, n = int(self.is_canonical(x).sum()), len(x)
        low = float(scipy.special.betaincinv(k, n - k + 1, 0.025)) if k else 0.0
        high = float(scipy.special.betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
        return k / n, low, high


def _steps(next_qv: NDArray[np.int32]) -> list[list[tuple[int, int]]]:
    """Return, for each state, the states after it, each with its number of values."""
    counts = (np.unique(row, return_counts=True) for row in next_qv)
    return [list(zip(to.tolist(), n.tolist(), strict=True)) for to, n in counts]


def fingerprint(config: Config) -> str:
    """Return a hash of the constraint as the input file states it."""
    given = "" if config.space is None else config.space.model_dump_json(exclude_none=True)
    return f"space:{hashlib.sha256(given.encode()).hexdigest()}"


def end_id(config: Config) -> int | None:
    """Return the model's own number of the value that ends texts; None if they do not end.

    Raises a `UserError` if it has none.
    """
    given, options = getattr(config.space, "end", None), config.model
    if given is None or not isinstance(options, CausalLm):
        return given
    folder = hf_folder.resolve(options.path)
    words, token = tokenizer.read(folder), given
    if token == "eos":
        token = hf_folder.read_config(folder).get("eos_token_id")
        if type(token) is not int:
            found = tokenizer.require(words, folder, 'space.end = "eos"')
            token = found.id_of("eos_token", "<|endoftext|>")
    tokens = hf_folder.tokens_of(options, folder, hf_folder.n_vocab_of(folder), words)
    value = np.flatnonzero(tokens == token)
    if not value.size:
        name = str(token) if words is None else words.name_of(token)
        raise UserError(
            f"space.end: the token {name} is not among the model's {len(tokens):,} values"
        )
    return int(value[0])


def require_token_ids(config: Config, key: str, remedy: str) -> None:
    """Raise a `UserError` if the model's own numbers, given for `key`, are not its token ids.

    With ``model.tokens = "no-special"`` they are places among the tokens that are left.
    """
    options: Any = config.model
    if getattr(options, "tokens", None) != "no-special":
        return
    folder = hf_folder.resolve(options.path)
    words = tokenizer.read(folder)
    tokens = hf_folder.tokens_of(options, folder, hf_folder.n_vocab_of(folder), words)
    if not np.array_equal(tokens, np.arange(len(tokens))):
        raise UserError(
            f'{key}: with model.tokens = "no-special", tokens are numbered without the special '
            f"ones, so these numbers may not be the tokens that you mean; {remedy}"
        )


def of_texts(n_values: int, n_sites: int, end: int, first: int) -> Automaton:
    """Return the automaton of texts that end at site `first` or later, or not at all.

    State 0 is before the end, 1 after it.
    """
    next_qv = np.array([[0], [2], [2]], dtype=np.int32).repeat(n_values, axis=1)
    next_qv[:2, end] = 1
    allowed_iv = np.ones((n_sites, n_values), dtype=np.bool_)
    allowed_iv[:first, end] = False
    return Automaton(next_qv, np.array([True, True, False]), allowed_iv, n_sites, end)


def of(config: Config, model: Any) -> Automaton | None:
    """Return which inputs of a model exist; None if all do.

    Raises a `UserError` if the constraint is wrong, or leaves all inputs, or fewer than two.
    """
    if config.space is None or not config.constrained:
        return None
    n_values, n_sites = model.n_values, model.n_sites
    if config.space.end is not None:
        texts = getattr(model, "base", model)  # an `Ended`
        return of_texts(n_values, n_sites, texts.end, texts.predicted_from)
    next_qv = np.array([[0], [1]], dtype=np.int32).repeat(n_values, axis=1)
    accepting_q, allowed_iv = np.array([True, False]), None
    if isinstance(config.space.allowed, list):
        require_token_ids(config, "space.allowed", "leave out model.tokens: the lists suffice")
        allowed_iv = _allowed(config.space.allowed, n_values, n_sites)
    if config.space.pattern is not None:
        texts = _texts(config, model)
        next_qb, accepting_q = byte_automaton(config.space.pattern)
        if len(next_qb) * n_values > MAX_TRANSITIONS:
            raise UserError(
                f"space.pattern needs {len(next_qb):,} states for each of {n_values:,} values, "
                "which is too many; choose a simpler one"
            )
        next_qv, accepting_q = over_values(next_qb, accepting_q, texts)
    is_canonical = None
    if config.space.canonical:
        words, ids = _words(config, model, "space.canonical")
        next_qv, accepting_q = _canonical(words, ids, (next_qv, accepting_q))
        if not canonical.pairs_decide(words):
            is_canonical = partial(_is_canonical, words, ids)
    found = Automaton(next_qv, accepting_q, allowed_iv, n_sites, is_canonical=is_canonical)
    if found.n_inputs == n_values**n_sites:
        raise UserError(f"{config.constraint} leaves out no input; leave it out")
    if found.n_inputs < 2:
        number = "only one input" if found.n_inputs else "no input"
        whole = " (the whole text must match, so that ^ and $ are not needed)"
        raise UserError(
            f"{config.constraint} leaves {number} of {n_sites} sites"
            + (whole if config.space.pattern is not None else "")
        )
    return found


def _allowed(lists: list[list[int]], n_values: int, n_sites: int) -> NDArray[np.bool_]:
    """Return the values of each site, bool [D, V]."""
    if len(lists) != n_sites:
        raise UserError(
            f"space.allowed has {len(lists)} lists of values, but inputs have {n_sites} sites"
        )
    allowed_iv = np.zeros((n_sites, n_values), dtype=np.bool_)
    for i, values in enumerate(lists):
        if max(values) >= n_values:
            raise UserError(
                f"space.allowed, list {i + 1}: the value {max(values)} is not from 0 to "
                f"{n_values - 1}"
            )
        allowed_iv[i, values] = True
    return allowed_iv


def _texts(config: Config, model: Any) -> list[bytes | None]:
    """Return the text of each value in bytes; None: it never matches (a special token)."""
    if KINDS[config.model.kind].has_tokenizer:
        words, ids = _words(config, model, "space.pattern")
        return words.bytes_of(ids.tolist(), "space.pattern")
    given = getattr(getattr(model, "base", model), "tokens", None)
    if given is None or len(given) != model.n_values:
        raise UserError(
            "space.pattern needs the text of each value: give the model an attribute tokens, a "
            f"list of {model.n_values} texts"
        )
    if not all(isinstance(text, str | bytes) for text in given):
        raise UserError("space.pattern: the model's tokens are not all texts")
    return [text.encode() if isinstance(text, str) else text for text in given]


def _words(config: Config, model: Any, key: str) -> tuple[Vocabulary, NDArray[np.int64]]:
    """Return the tokenizer of a model's folder, and the token of each value, int64 [V]."""
    options: Any = config.model
    folder = hf_folder.resolve(options.path)
    words = tokenizer.require(tokenizer.read(folder), folder, key)
    tokens = hf_folder.tokens_of(options, folder, hf_folder.n_vocab_of(folder), words)
    return words, tokens[space_of(model).to_ids(np.arange(model.n_values))]


def _canonical(words: Vocabulary, ids: NDArray[np.int64], given: Table) -> Table:
    """Return an automaton that accepts what `given` does, if all pairs of neighbours are possible.

    Raises a `UserError` if the tokenizer cannot tell, or has too many tokens.
    """
    if len(ids) ** 2 > MAX_PAIRS:
        raise UserError(
            f"space.canonical tries all pairs of values, too many of {len(ids):,}; leave it out: "
            "omniinput reweight prints which share of a run's sequences is canonical, at each z, "
            "and the number of canonical ones"
        )
    texts = words.bytes_of(ids.tolist(), "space.canonical", special=True)
    words.check_encoding()
    whole = over_values(*canonical.whole_characters(), texts)
    return _both(_both(canonical.automaton(words, ids, texts), whole), given)


def _is_canonical(
    words: Vocabulary, ids: NDArray[np.int64], x_nd: NDArray[np.int64]
) -> NDArray[np.bool_]:
    return canonical.is_canonical(words, ids[x_nd])


def _both(one: Table, other: Table) -> Table:
    """Return an automaton over values that accepts what two do.

    Raises a `UserError` if it needs too many states.
    """
    (next_pv, accepting_p), (next_qv, accepting_q) = one, other
    n, dead_p, dead_q = len(next_qv), len(next_pv) - 1, len(next_qv) - 1
    states, number, rows = [0], {0: 0, -1: -1}, []
    for state in states:  # it grows
        p_v, q_v = next_pv[state // n], next_qv[state % n]
        after = np.where((p_v == dead_p) | (q_v == dead_q), -1, p_v.astype(np.int64) * n + q_v)
        different, which = np.unique(after, return_inverse=True)
        for new in different.tolist():
            if new not in number:
                number[new] = len(states)
                states.append(new)
        if len(states) * len(p_v) > MAX_TRANSITIONS:
            raise UserError("[space] needs too many states; leave out one of its keys")
        rows.append(np.array([number[new] for new in different.tolist()], dtype=np.int32)[which])
    next_sv = np.stack([*rows, np.full_like(rows[0], -1)])
    next_sv[next_sv < 0] = len(states)
    s = np.array(states)
    return next_sv, np.append(accepting_p[s // n] & accepting_q[s % n], False)


def byte_automaton(pattern: str) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return an automaton over bytes, as in `Automaton` with V = 256, that accepts a pattern.

    Raises a `UserError` if the pattern is wrong, or if the library is missing.
    """
    if find_spec("outlines_core") is None:
        raise UserError("space.pattern needs a package: pip install outlines-core")
    from outlines_core import Index, Vocabulary

    if _has_beginning(pattern):
        raise UserError(
            f"space.pattern = {pattern!r}: the whole text must match, so leave out ^ and \\A "
            "(write (.* )?x for (^|.* )x)"
        )
    words = Vocabulary(N_BYTES, {bytes([byte]): [byte] for byte in range(N_BYTES)})
    index = None
    # Alone it shows an unbalanced parenthesis. \z: otherwise "a|ab" would match only "a", as the
    # library prefers the first alternative.
    for text in (pattern, f"(?:{pattern})\\z"):
        try:
            index = Index(f"\\x{BEFORE:02x}{text}", words)
        except ValueError as error:
            if "build DFA" in str(error):
                raise UserError(
                    f"space.pattern = {pattern!r} cannot be read, or has what automata cannot "
                    f"match, such as look-around: {first_line(error)}"
                ) from None
            index = None  # a part of it never matches
    if index is None:
        return np.ones((2, N_BYTES), dtype=np.int32), np.array([False, False])
    steps = index.get_transitions()
    states = {state: q for q, state in enumerate(steps)}
    next_qb = np.full((len(states) + 1, N_BYTES), len(states), dtype=np.int32)
    for state, q in states.items():
        to = {byte: states[end] for byte, end in steps[state].items() if byte < N_BYTES}
        next_qb[q, list(to)] = list(to.values())
    accepting_q = np.zeros(len(next_qb), dtype=np.bool_)
    accepting_q[[states[state] for state in index.get_final_states()]] = True
    return _minimal(next_qb, accepting_q, int(next_qb[states[index.get_initial_state()], BEFORE]))


def _has_beginning(pattern: str) -> bool:
    r"""Return whether a pattern holds ^ or \A, which never match after the byte `BEFORE`."""
    n_open = i = 0  # n_open: brackets of a class
    while i < len(pattern):
        sign = pattern[i]
        if sign == "\\":
            if pattern[i + 1 : i + 2] == "A" and not n_open:
                return True
            i += 1
        elif sign == "[":
            n_open += 1
            i += pattern[i + 1 : i + 2] == "^"  # all but these
            i += pattern[i + 1 : i + 2] == "]"  # itself in the class
        elif sign == "]" and n_open:
            n_open -= 1
        elif sign == "^" and not n_open:
            return True
        i += 1
    return False


def _minimal(
    next_qv: NDArray[np.int32], accepting_q: NDArray[np.bool_], start: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the smallest equivalent automaton: states that accept the same words are one (Moore).

    `start` becomes state 0.
    """
    class_q, n_before, n = accepting_q.astype(np.int32), 0, 1
    while n > n_before:
        rows, classes = np.column_stack([class_q, class_q[next_qv]]), dict[bytes, int]()
        numbers = [classes.setdefault(row.tobytes(), len(classes)) for row in rows]
        class_q, n_before, n = np.array(numbers, dtype=np.int32), n, len(classes)
    one_of = np.unique(class_q, return_index=True)[1]  # a state of each class
    next_cv = class_q[next_qv[one_of]]
    return _reached(next_cv, accepting_q[one_of], int(class_q[start]), int(class_q[-1]))


def _reached(
    next_qv: NDArray[np.int32], accepting_q: NDArray[np.bool_], start: int, dead: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return an automaton without the states that `start` does not lead to, and the dead one."""
    reached, seen = [start], {start, dead}
    for state in reached:  # it grows
        new = [to for to in np.unique(next_qv[state]).tolist() if to not in seen]
        reached += new
        seen.update(new)
    kept, number_q = [*reached, dead], np.full(len(next_qv), len(reached), dtype=np.int32)
    number_q[reached] = np.arange(len(reached))
    return number_q[next_qv[kept]], accepting_q[kept]


def over_values(
    next_qb: NDArray[np.int32], accepting_q: NDArray[np.bool_], texts: Sequence[bytes | None]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the automaton over values whose texts in bytes are given, from that over bytes."""
    dead = len(next_qb) - 1
    next_qv = np.tile(np.arange(dead + 1, dtype=np.int32)[:, None], len(texts))
    length_v = np.array([-1 if text is None else len(text) for text in texts])
    for j in range(int(length_v.max(initial=0))):
        some = np.flatnonzero(length_v > j)
        byte = [text[j] for text in texts if text is not None and len(text) > j]
        next_qv[:, some] = next_qb[next_qv[:, some], byte]
    next_qv[:, length_v < 0] = dead
    return _reached(next_qv, accepting_q, 0, dead)
