"""The interface of a model: required and optional methods.

`offers_of` looks the optional methods up once; kernels read the record that it returns instead of a
model's attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from omniinput_hpc.config.space import Space

if TYPE_CHECKING:
    import torch

    from omniinput_hpc.models.language.kv_cache import KVCache

    Rest = tuple[torch.Tensor, ...]
    OutputAndMore = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    Change = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    CompiledChange = Callable[[Any, int, int], float]


class Model(Protocol):
    """A model: `n_values`, `n_sites` and `output` are required; `Offers` lists what is optional.

    Inputs x are int64 [W, D]; W is the same in all calls of a run,
    but for searches of `look_ahead`.

    Attributes
    ----------
    n_values : int, values per site
    n_sites : int, D
    """

    n_values: int
    n_sites: int

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of inputs x, int64 [W, D]."""
        ...


@dataclass(frozen=True)
class Factors:
    """A gradient in factors: g[w, i, v] = e[w, i] @ embedding[v] + t[w, i, v], never built whole.

    Attributes
    ----------
    embedding : returns float32 [n_values, E]; None if this model cannot be factored (then use
        ``output_and_gradient``)
    output_and_factors : returns (z, e, rest) of x: e float32 [W, D, E]; rest is a tuple of tensors
        whose first axis is W, so that walkers of two batches can be mixed
    target_rows : returns t of one site per walker, float32 [W, n_values], from rest and the sites,
        int64 [W]; zeros if the model is not a language model
    """

    embedding: Callable[[], torch.Tensor | None]
    output_and_factors: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, Rest]]
    target_rows: Callable[[Rest, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Prefixes:
    """Draw sequences from the first site on, one value at a time.

    `begin` and `extend` return a state s of prefixes of t sites. ``s.log_p``, float32 [n,
    n_values], is row t of l (uniform, -ln V, if site t is not predicted).

    Attributes
    ----------
    begin : evaluates the first t sites of n inputs, int64 [n, t]; t = 0 is allowed
    extend : (s, values) appends one value to each prefix, int64 [n]; s must not be used afterwards
    branch : (s) appends every value to each prefix: n * n_values prefixes, the value varying
        fastest; None if the model does not offer it
    select : (s, rows) returns the prefixes at the indices rows, int64 [k], in that order and with
        repetitions; s may still be used. None if the model does not offer it
    """

    begin: Callable[[torch.Tensor], Any]
    extend: Callable[[Any, torch.Tensor], Any]
    branch: Callable[[Any], Any] | None
    select: Callable[[Any, torch.Tensor], Any] | None = None


@dataclass(frozen=True)
class Draws:
    """Draw whole inputs with a KV cache, one value at a time.

    Attributes
    ----------
    kv_cache : returns a `KVCache` for proposals of n inputs, without current inputs; the one of
        `Offers.kv_cache` if that has the same n
    n_together : largest number of inputs that are drawn faster together than in successive batches;
        0 if none is. It must depend only on the model and the device, so that runs are reproducible
    """

    kv_cache: Callable[[int], KVCache]
    n_together: int


@dataclass(frozen=True)
class Offers:
    """What a model offers beyond `Model`; None for what it does not offer.

    Attributes
    ----------
    output_and_gradient : returns (z, g) of x: g = dz / d one_hot(x), float32 [W, D, n_values]
    without_gradient : returns why a model that has ``output_and_gradient`` cannot be differentiated
        (its own code fails, or gives another z); "" if it can
    factors : the same gradient in factors (``output_and_factors``, ``target_rows``, ``embedding``)
    change : (x, site, value) returns the change of z, float32 or float64 [W], if one site of each
        input is set to a value; site and value are int64 [W]. For outputs that are sums of local
        terms: `metropolis` then rarely evaluates whole inputs
    compiled_change : the same for one input, compiled by numba.njit: (x, site, value) returns a
        number, given x, int64 [D], and two integers. On a CPU `metropolis` then makes all moves in
        compiled code. It is an attribute set in ``__init__``, not a method
    conditional_logits : returns (z, l) of x: l[w, i, v] = log-weight of value v at site i given the
        sites before it, float32 [W, D, n_values]; z = -mean over i >= predicted_from of
        l[w, i, x_i]. Rows need not be normalized.
    predicted_from : the first predicted site (default 1)
    prefixes : cached drawing (``begin``, ``extend``, ``branch``, ``select``), for enumeration, the
        census, and independent draws without a KV cache. `lm-conditional` takes all its rows from
        ``conditional_logits`` or the KV cache, because a proposal and its reverse must be weighed
        by the same numbers
    kv_cache : returns the `KVCache` of W inputs. The model owns it, and all kernels that ask for
        the same W share it; a kernel compares its `version` to see whether another kernel has
        replaced its inputs
    draws : drawing with a KV cache; without it, `prefixes` or ``conditional_logits`` draw
    cache_bytes : returns the memory that KV caches and packed weights take now; 0 without them
    without_graphs : returns why a GPU evaluates the model without CUDA graphs; "" if it uses them
        or if there is nothing to report
    batch_invariant : whether z of an input, and its change, have the same bits in batches of any
        size. On a CPU `metropolis` then moves all rungs of a rank in one batch
    render : returns what a person sees of x: n strings, or n uint8 images [h, w] or [h, w, 3]
    """

    output_and_gradient: OutputAndMore | None
    without_gradient: Callable[[], str]
    factors: Factors | None
    change: Change | None
    compiled_change: CompiledChange | None
    conditional_logits: OutputAndMore | None
    predicted_from: int
    prefixes: Prefixes | None
    kv_cache: Callable[[int], KVCache] | None
    draws: Draws | None
    cache_bytes: Callable[[], int]
    without_graphs: Callable[[], str]
    batch_invariant: bool
    render: Callable[[torch.Tensor], list[Any]] | None


def law_of(model: Any) -> Any:
    """Return the law of inputs (`kernels.parts.law.Law`); None: all inputs weigh the same."""
    return getattr(model, "law", None)


def space_of(model: Any) -> Space:
    """Return which of its values a model's sites may take; all by default."""
    found = getattr(model, "space", None)
    return found if isinstance(found, Space) else Space(model.n_values)


def offers_of(model: Any) -> Offers:
    """Return what a model offers; a `CheckedModel` has its own record, with checked outputs.

    This is the only place that looks for optional attributes.
    """
    found = getattr(model, "offers", None)
    if isinstance(found, Offers):
        return found

    def method(name: str) -> Any:
        value = getattr(model, name, None)
        return value if callable(value) else None

    factors = prefixes = None
    names = ("output_and_factors", "target_rows")
    if all(map(method, names)):
        factors = Factors(lambda: getattr(model, "embedding", None), *map(method, names))
    if method("begin") and method("extend"):
        prefixes = Prefixes(*map(method, ("begin", "extend", "branch", "select")))
    return Offers(
        output_and_gradient=method("output_and_gradient"),
        without_gradient=lambda: str(getattr(model, "without_gradient", "")),
        factors=factors,
        change=method("change"),
        compiled_change=getattr(model, "compiled_change", None),
        conditional_logits=method("conditional_logits"),
        predicted_from=int(getattr(model, "predicted_from", 1)),
        prefixes=prefixes,
        kv_cache=method("kv_cache"),
        draws=draws if isinstance(draws := getattr(model, "draws", None), Draws) else None,
        cache_bytes=lambda: sum(getattr(model, n, 0) for n in ("cache_bytes", "packed_bytes")),
        without_graphs=lambda: str(getattr(model, "without_graphs", "")),
        batch_invariant=bool(getattr(model, "batch_invariant", False)),
        render=method("render"),
    )
