"""Wrap a model to detect NaN or infinite z without synchronizing with the device."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc import rng
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.compiled_change import as_change
from omniinput_hpc.models.protocol import Model, offers_of, space_of

if TYPE_CHECKING:
    from omniinput_hpc.models.protocol import Change

N_COMPARED = 16
"""At least this many inputs are evaluated again at the start."""
MAX_SECONDS = 5.0
"""Seconds after which the start compares no further changes of inputs."""
MANY = 0.25
"""Largest share of inputs whose outputs may differ by more than the usual rounding."""
RARE = (6e-4, 9e-5)
"""Largest difference of z for rare inputs that amplify rounding, absolute and relative to z: 30
times the usual rounding in float32. At beta = 24 it changes a ratio of weights by 2 %. In half
precision the usual rounding is larger than this, and no input may exceed it."""
MAX_CHARACTERS_SHOWN, MAX_VALUES_SHOWN = 500, 200
"""Lengths to which the error message cuts an input."""


class NonFiniteOutput(Exception):
    """The model returned NaN or infinity."""


OVERFLOW = (
    '; model.dtype = "float16" has no numbers above 65504: set model.dtype = "bfloat16", or '
    '"float32"'
)


@contextmanager
def refused_unless_finite() -> Iterator[None]:
    """Turn a `NonFiniteOutput` into a `UserError`, for evaluations before a run begins."""
    try:
        yield
    except NonFiniteOutput as error:
        raise UserError(str(error)) from None


class NotAFunction(Exception):
    """The model returned different outputs for one input."""


LN_Q = "ln q of [law] (rows must sum to 1)"


IS_NO_FUNCTION = (
    "it is not a function of the input (dropout, random numbers, or the other inputs of a batch?): "
    "fix it, or set model.noise = true to sample it as it is"
)


WRONG_CHANGE = (
    "change(x, site, value) must return z of the changed input minus z of x: fix it, or remove it, "
    "so that whole inputs are evaluated"
)


def no_rounding(n_over: int, n_far: int, n: int) -> bool:
    """Return whether outputs of n inputs differ by more than rounding explains (`MANY`, `RARE`).

    n_over inputs differ by more than the usual rounding; n_far of these also by more than `RARE`.
    """
    return n_far > 0 or n_over > MANY * n


def compare(
    model: Any, x: torch.Tensor, z: torch.Tensor, z_again: torch.Tensor, summed: bool = False
) -> None:
    """Call `CheckedModel.compare`; do nothing for other models."""
    if isinstance(model, CheckedModel):
        model.compare(x, z, z_again, summed)


def seen_finite(z: torch.Tensor) -> bool:
    """Return whether z is known to be finite; False on a GPU, where checking would wait."""
    return z.is_cpu and math.isfinite(float(z.sum()))  # one call of torch; `isfinite` is five


def watch(model: Any, x: torch.Tensor, z: torch.Tensor, what: str = "z") -> None:
    """Let a `CheckedModel` check z, [W], from a KV cache; do nothing for other models."""
    if isinstance(model, CheckedModel):
        model.watch(x, z, what)


def watch_law(model: Any, x: torch.Tensor, log_q: torch.Tensor) -> None:
    """Let a `CheckedModel` check ln q, [W], of inputs under a law: it may be -inf, but not NaN."""
    if isinstance(model, CheckedModel):
        model.watch(x, log_q.nan_to_num(nan=torch.nan, neginf=0.0), LN_Q)


class CheckedModel:
    """Wrap a model; record inputs with non-finite z, and how far repeated outputs differ.

    Outputs of `output` and of the methods in `offers` are checked. A kernel that gets z from a KV
    cache must call the function `watch`.

    Parameters
    ----------
    rounding : allowed difference between two outputs of one input, absolute and relative to z;
        None: outputs are not compared
    dtype : of the weights

    Attributes
    ----------
    law : what inputs are weighed by (`kernels.parts.law.Law`); None: all weigh the same
    offers : what the model offers beyond the protocol
    n_compared : number of comparisons of outputs
    """

    def __init__(
        self,
        model: Model,
        name: str,
        rounding: tuple[float, float] | None = None,
        dtype: str = "float32",
        law: Any = None,
    ) -> None:
        self._model, self._name, self._rounding, self.law = model, name, rounding, law
        self._dtype = dtype
        self.n_compared = 0
        # By `summed`, [2]: largest difference, in units of the rounding and of z
        self._apart: dict[bool, torch.Tensor] = {}
        self._counts: torch.Tensor | None = None  # [2], see `take_counts`
        self._n_outputs = 0
        self.n_values, self.n_sites, self.space = model.n_values, model.n_sites, space_of(model)
        # By `what`: whether z was not finite, its slot, both [1], and its input, [1, D]
        self._bad: dict[str, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        offers = offers_of(model)
        factors = offers.factors
        if factors is not None:
            checked = self._watched(factors.output_and_factors)
            factors = replace(factors, output_and_factors=checked)
        self.offers = replace(
            offers,
            output_and_gradient=self._watched(offers.output_and_gradient),
            conditional_logits=self._watched(offers.conditional_logits),
            factors=factors,
        )

    def _watched(self, method: Callable[[torch.Tensor], Any] | None) -> Any:
        """Wrap a method that returns (z, ...), so that its z is checked."""
        if method is None:
            return None

        def call(x: torch.Tensor) -> Any:
            found = method(x)
            self.watch(x, found[0])
            return found

        return call

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return the model's z, float32 [W]."""
        z = self._model.output(x)
        self.watch(x, z)
        return z

    def watch(self, x: torch.Tensor, z: torch.Tensor, what: str = "z") -> None:
        """Record the first of the inputs, int64 [W, D], whose z, [W], is not finite.

        `what` says what z is, for the message. W may differ between calls.
        """
        if seen_finite(z):
            return  # without copying x
        found, slot = (~z.isfinite()).to(torch.uint8).max(dim=0, keepdim=True)
        bad, x_bad = found.bool(), x.index_select(0, slot)
        if what in self._bad:
            before, first, x_first = self._bad[what]
            slot, x_bad = torch.where(before, first, slot), torch.where(before, x_first, x_bad)
            bad = before | bad
        self._bad[what] = bad, slot, x_bad

    def compare(
        self, x: torch.Tensor, z: torch.Tensor, z_again: torch.Tensor, summed: bool = False
    ) -> None:
        """Record the largest difference between two outputs, [W], of inputs x, int64 [W, D].

        `summed`: z was summed from changes. Nothing is copied to the host until `apart` is called.
        """
        if self._rounding is None:
            return
        number, share = self._rounding
        apart_w = (z_again - z).abs()
        usual_w = number + share * z.abs()
        times_w = apart_w / usual_w
        found = torch.stack([times_w.max(), apart_w.max()])
        before = self._apart.get(summed)
        self._apart[summed] = found if before is None else torch.maximum(before, found)
        if not summed:
            most_w = torch.maximum(usual_w, RARE[0] + RARE[1] * z.abs())
            counts = torch.stack([(apart_w > usual_w).sum(), (apart_w > most_w).sum()])
            self._counts = counts if self._counts is None else self._counts + counts
            self._n_outputs += len(x)
        self.n_compared += 1

    def apart(self, summed: bool = False) -> tuple[float, float]:
        """Return the largest difference between outputs, in units of the allowed rounding and of z.

        `summed` selects outputs that were summed from changes. Synchronizes with the device.
        NaN counts as 0: `raise_if_nonfinite` reports non-finite values.
        """
        if summed not in self._apart:
            return 0.0, 0.0
        times, apart = self._apart[summed].nan_to_num(0.0).tolist()
        return times, apart

    def take_counts(self) -> tuple[int, int, int]:
        """Return n_over, n_far and n for `no_rounding`, counted since the last call.

        Outputs that were summed from changes are not counted. Synchronizes with the device.
        """
        n_over, n_far = (0, 0) if self._counts is None else self._counts.tolist()
        n, self._n_outputs, self._counts = self._n_outputs, 0, None
        return n_over, n_far, n

    def render(self, x: torch.Tensor) -> list[Any]:
        """Return what a person sees of inputs x; their values if the model has no `render`."""
        if self.offers.render is not None:
            return list(self.offers.render(x))
        return [" ".join(map(str, row)) for row in x.tolist()]

    def raise_if_nonfinite(self) -> None:
        """Raise `NonFiniteOutput`, which names the first such input, if any z was not finite.

        Synchronizes with the device.
        """
        for what, (bad, slot, x) in self._bad.items():
            if bool(bad):
                shown = str(self.render(x)[0])
                raise NonFiniteOutput(
                    f"{self._name} returned a {what} that is not finite for the input in slot "
                    f"{int(slot)}: {shown[:MAX_CHARACTERS_SHOWN]!r} "
                    f"(values {x[0].tolist()[:MAX_VALUES_SHOWN]})"
                    f"{OVERFLOW if self._dtype == 'float16' else ''}"
                )


def try_out(model: Model, x: torch.Tensor, name: str) -> torch.Tensor:
    """Evaluate a model once; return z, float32 [W].

    Raises `UserError` if z has the wrong shape or type, if the batch does not fit into the device's
    memory, or if the model changes x.
    """
    given = x.clone()
    try:
        z = model.output(given)
    except torch.OutOfMemoryError:
        raise UserError(
            f"{name}: a batch of {len(x)} inputs does not fit on {x.device}; set a smaller "
            'sampler.walkers, or model.dtype = "bfloat16"'
        ) from None
    if not isinstance(z, torch.Tensor):
        raise UserError(f"{name}: output(x) must return a tensor, found {type(z).__name__}")
    if z.shape != x.shape[:1] or z.dtype != torch.float32:
        raise UserError(
            f"{name}: output(x) must return float32 [{x.shape[0]}] for {x.shape[0]} inputs, "
            f"found {described(z)}"
        )
    _check_unchanged(given, x, "output(x)", name)
    return z


def _check_unchanged(given: torch.Tensor, x: torch.Tensor, called: str, name: str) -> None:
    if not torch.equal(given, x):
        raise UserError(f"{name}: {called} must not write into x; let it change a copy, x.clone()")


def check_keeps_inputs(
    model: Model, shape: tuple[int, int], name: str, device: str, own: bool
) -> None:
    """Raise a `UserError` if a model writes into the inputs, integers [W, D], that it is given.

    `own`: the model is the user's, and its optional methods are tried, too. The inputs are random,
    because a model that sorts its inputs, for example, would leave zeros unchanged.
    """
    n_values, offers = model.n_values, offers_of(model)
    methods: dict[str, Callable[[torch.Tensor], Any] | None] = {"output": model.output}
    if own:
        methods["output_and_gradient"] = offers.output_and_gradient
        methods["conditional_logits"] = offers.conditional_logits
    x = torch.from_numpy(
        rng.generator(0, "fingerprint", shape[1], 5).integers(n_values, size=shape)
    )
    x = x.to(device)
    for called, method in methods.items():
        if method is not None:
            given = x.clone()
            with suppress(torch.OutOfMemoryError):  # the kernel may never call it
                method(given)
            _check_unchanged(given, x, f"{called}(x)", name)


def check_is_function(
    evaluate: Callable[[NDArray[Any]], NDArray[np.float32]],
    shape: tuple[int, int],
    n_values: int,
    allowed: tuple[float, float] | None,
    name: str,
) -> None:
    """Raise a `UserError` if repeated evaluations of an input differ by more than `allowed`.

    Some inputs are evaluated twice, and again in other rows of batches with other inputs.

    Parameters
    ----------
    evaluate : returns z, float32 [W], of a batch of inputs, integers [W, D]
    shape : (W, D)
    allowed : largest difference of z, absolute and relative to z (see `models.rounding`); None: the
        model is declared to be noisy, and nothing is compared
    name : of the model, for the message
    """
    if allowed is None:
        return
    (n_walkers, n_sites), dtype = shape, np.min_scalar_type(n_values - 1)
    probes, others = (rng.generator(0, "fingerprint", n_sites, *i) for i in ((), (2,)))
    row = np.arange(n_walkers)
    times = apart = 0.0
    for _ in range(-(-N_COMPARED // n_walkers)):
        x = probes.integers(n_values, size=shape).astype(dtype)
        z, kept = evaluate(x), [(evaluate(x), row, row)]
        for parity in range(2):  # half of the inputs, moved by one row; the others are new
            same = row % 2 == parity
            rolled = others.integers(n_values, size=shape).astype(dtype)
            rolled[same] = np.roll(x, 1, axis=0)[same]
            kept.append((evaluate(rolled), row[same], np.roll(row, 1)[same]))
        for z_again, there, here in kept:
            with np.errstate(invalid="ignore"):  # non-finite z is reported elsewhere
                apart_w = np.nan_to_num(np.abs(z_again[there] - z[here]), posinf=np.inf)
                times_w = np.nan_to_num(apart_w / (allowed[0] + allowed[1] * np.abs(z[here])))
            times = max(times, times_w.max(initial=0.0))
            apart = max(apart, apart_w.max(initial=0.0))
    if times > 1.0:
        raise UserError(
            f"{name} returned outputs that differ by {apart:.3g} for the same input, "
            f"{times:.3g} times what rounding explains: {IS_NO_FUNCTION}"
        )


def check_change(
    model: Model,
    shape: tuple[int, int],
    allowed: tuple[float, float] | None,
    name: str,
    device: str,
) -> None:
    """Compare the changes of z that a model returns, if it does, with its outputs.

    Random inputs are changed at every site, as far as `MAX_SECONDS` allows; the parameters are
    those of `check_is_function`. Raises `UserError` if changes and outputs differ by more than is
    allowed, or if the model returns the wrong shape or type.
    """
    offers = offers_of(model)
    if allowed is None:
        return
    if offers.change is not None:
        _check_change("change", offers.change, model, shape, allowed, name, device)
    if offers.compiled_change is not None and device == "cpu":
        change = as_change(offers.compiled_change)
        _check_change("compiled_change", change, model, shape, allowed, name, device)


def _check_change(
    said_by: str,
    change: Change,
    model: Model,
    shape: tuple[int, int],
    allowed: tuple[float, float],
    name: str,
    device: str,
) -> None:
    """Compare the changes of z that one function returns with outputs; see `check_change`."""
    (n_walkers, n_sites), n_values = shape, model.n_values
    random, begin = rng.generator(0, "fingerprint", n_sites, 4), time.monotonic()
    order = np.resize(random.permutation(n_sites), n_walkers * -(-n_sites // n_walkers))
    batches = np.resize(order, (-(-max(n_sites, N_COMPARED) // n_walkers), n_walkers))
    for number, site_w in enumerate(batches):
        if number * n_walkers >= N_COMPARED and time.monotonic() - begin > MAX_SECONDS:
            return
        x, site = (
            torch.from_numpy(a).to(device) for a in (random.integers(n_values, size=shape), site_w)
        )
        shift = torch.from_numpy(random.integers(1, n_values, size=n_walkers)).to(device)
        value = (x.gather(1, site[:, None])[:, 0] + shift) % n_values  # [W]
        given = x.clone()
        dz = change(given, site, value)
        if (
            not isinstance(dz, torch.Tensor)
            or dz.shape != (n_walkers,)
            or not dz.is_floating_point()
        ):
            raise UserError(
                f"{name}: {said_by}(x, site, value) must return float32 or float64 [{n_walkers}] "
                f"for {n_walkers} inputs, found {described(dz)}"
            )
        _check_unchanged(given, x, f"{said_by}(x, site, value)", name)
        z, z_new = model.output(x), model.output(x.scatter(1, site[:, None], value[:, None]))
        apart_w = (z.double() + dz.double() - z_new.double()).abs()
        times_w = apart_w / (allowed[0] + allowed[1] * torch.maximum(z.abs(), z_new.abs()))
        worst = int(times_w.nan_to_num(torch.inf).argmax())
        if z_new.isfinite().all() and not float(times_w[worst]) <= 1.0:
            said, found, times = float(dz[worst]), float((z_new - z)[worst]), float(times_w[worst])
            raise UserError(
                f"{name}: at site {int(site[worst])}, {said_by} returned {said:.6g}, but outputs "
                f"differ by {found:.6g} ({times:.3g} times what rounding explains): "
                f"{WRONG_CHANGE}"
            )


def described(found: Any) -> str:
    """Describe an object that was found instead of the expected tensor."""
    if isinstance(found, torch.Tensor):
        return f"{str(found.dtype).removeprefix('torch.')} {list(found.shape)}"
    return type(found).__name__
