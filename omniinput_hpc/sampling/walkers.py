"""The walkers of one rung on their device: moved by a kernel, recorded without synchronization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.kernels import DeviceStream, Info, Kernel, Learner, State, Target
from omniinput_hpc.kernels.independent import AncestralSampler, AutoregressiveSampler
from omniinput_hpc.kernels.look_ahead.continuations import Texts
from omniinput_hpc.kernels.metropolis import Metropolis
from omniinput_hpc.kernels.parts.compiled_loop import MAX_WALKER_MOVES, CompiledLoop, Trace
from omniinput_hpc.models.checked import CheckedModel
from omniinput_hpc.tempering.ensembles import Ensemble

OutOfMemoryError = torch.OutOfMemoryError
"""Raised if a device runs out of memory."""

MAX_STREAM_BLOCK = 1 << 22
"""The largest number of random numbers that are drawn at once."""


@dataclass(frozen=True)
class Recorded:
    """The record of a segment of T moves, on the host."""

    z_tw: NDArray[
        np.float32
    ]  # [T, W], after every move; on a CPU a view, valid until the next segment
    x_swd: NDArray[Any]  # unsigned [samples, W, D], the recorded samples
    attempted_p: NDArray[np.int64]  # [n_kernels], moves by part of the kernel, of all walkers
    accepted_p: NDArray[np.int64]  # [n_kernels]
    n_exact: int = 0  # exact draws among these moves, all counted under part 0
    log_q_swk: NDArray[np.float64] | None = None  # [samples, W, K], of draws; None for chains
    walker_sw: NDArray[np.int32] | None = None  # [samples, W]; None: the rung's present walkers

    @property
    def acceptance(self) -> float:
        """The share of accepted moves."""
        return float(self.accepted_p.sum()) / max(1, int(self.attempted_p.sum()))


@dataclass(frozen=True)
class Recording:
    """How walkers are recorded."""

    steps: int  # moves per segment, that is between two exchanges
    every: int  # moves between two recorded samples, counted from the start of the round
    x_dtype: np.dtype[Any]  # of x on the host


class Walkers:
    """W walkers of one rung, evaluated as one batch of fixed shape.

    Attributes
    ----------
    ensemble : the distribution that the walkers sample
    kernel : the transition that moves them
    model : evaluates them
    recording : how they are recorded
    """

    def __init__(
        self,
        kernel: Kernel,
        model: CheckedModel,
        ensemble: Ensemble,
        device: str | torch.device,
        recording: Recording,
    ) -> None:
        self.kernel, self.ensemble = kernel, ensemble
        self.model, self._device, self.recording = model, torch.device(device), recording
        # The kernel, if a compiled loop can make several of its moves in one call
        self._looped: Metropolis | None = None
        if isinstance(kernel, Metropolis) and kernel.loop is not None:
            self._looped = kernel if self.on_cpu else None
        self._exact_sampler: Kernel | None = None
        self._exact_every_move = False
        self._drawn: list[State] = []  # for the last moves of this and the following segments
        self._last_state: State | None = None  # for the last move of this segment
        self._placed: State | None = None
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def set_ensemble(
        self, ensemble: Ensemble, exact_sampler: Kernel | None, every_move: bool = False
    ) -> None:
        """Sample another ensemble from now on.

        `exact_sampler` draws from it directly, either at every move or only at the last move of a
        segment. In the second case an `AutoregressiveSampler` draws for several segments at once.
        With a compiled loop only the last move is drawn: a draw costs as much as many moves. The
        draws of an `AncestralSampler` are the samples themselves, so that it makes every move.
        """
        self.ensemble, self._exact_sampler = ensemble, exact_sampler
        loops = self._looped is not None and not isinstance(exact_sampler, AncestralSampler)
        self._exact_every_move = every_move and not loops
        self._drawn = []

    @property
    def exact_sampler(self) -> Kernel | None:
        """What draws from the ensemble directly, if anything does."""
        return self._exact_sampler

    @property
    def on_cpu(self) -> bool:
        """Whether the walkers are on a CPU."""
        return self._device.type == "cpu"

    def place(self, x_wd: NDArray[Any], z_w: NDArray[np.float32]) -> None:
        """Place walkers with inputs x, unsigned integers [W, D], and outputs z, float32 [W]."""
        x = torch.from_numpy(x_wd.astype(np.int64)).to(self._device)
        # Copied because the host array may be a read-only view of a message.
        self._placed = self.kernel.start(x, torch.from_numpy(z_w.copy()).to(self._device))

    def take(self, others: Walkers, source_w: NDArray[np.int64]) -> None:
        """Place copies of another rung's walkers: lane w gets walker source_w[w]."""
        source = torch.from_numpy(source_w).to(self._device)
        self._placed = self.kernel.start(others.state.x[source], others.state.z[source])

    @property
    def state(self) -> State:
        """The kernel's state of the walkers; raises a RuntimeError if none were placed."""
        if self._placed is None:
            raise RuntimeError("no walkers were placed")
        return self._placed

    def evaluate(self, x_wd: NDArray[Any]) -> NDArray[np.float32]:
        """Return the model's outputs, float32 [W], for inputs [W, D], which are not placed."""
        x = torch.from_numpy(x_wd.astype(np.int64)).to(self._device)
        z = self.model.output(x).cpu().numpy()
        self.model.raise_if_nonfinite()
        return np.asarray(z)

    def compare_again(self) -> None:
        """Evaluate the walkers again and compare, for kernels that do not do so themselves."""
        self.model.compare(self.state.x, self.state.z, self.model.output(self.state.x))

    def begin_segment(
        self, generator: np.random.Generator, shared: np.random.Generator, first_move: int
    ) -> Segment:
        """Return a segment of `steps` moves; the first is number `first_move` of its round.

        `generator` draws each walker's own random numbers, `shared` those that all walkers share.
        """
        steps, every = self.recording.steps, self.recording.every
        n_walkers, n_sites = self.state.x.shape
        if self._buffers is None:  # allocated once, since only one segment is recorded at a time
            max_samples = steps // every + 1
            self._buffers = (
                torch.empty((steps, n_walkers), device=self._device),
                torch.empty(
                    (max_samples, n_walkers, n_sites), dtype=torch.int64, device=self._device
                ),
            )
        mover = self.kernel
        if self._exact_sampler is not None and self._exact_every_move:
            mover = self._exact_sampler
        block = min(mover.uniforms_per_move * steps, MAX_STREAM_BLOCK)
        stream = DeviceStream(generator, self._device, block, shared)
        self._draw_ahead(first_move // steps, stream)
        self.ensemble.begin_segment(stream, n_walkers)
        return Segment(self, stream, *self._buffers, first_move)

    def _draw_ahead(self, segment: int, stream: DeviceStream) -> None:
        """Draw the last moves of this segment (number `segment` of its round) and of the next few.

        The random numbers come from the stream of the first of these segments. The first segment of
        a round always draws, and no draw outlives a round, so that a resumed run does the same.
        """
        sampler, self._last_state = self._exact_sampler, None
        if not isinstance(sampler, AutoregressiveSampler) or self._exact_every_move:
            return
        place = segment % sampler.n_ahead
        if place == 0 or not self._drawn:
            self._drawn = sampler.draw(self.state.x, stream)
        self._last_state = self._drawn[place]

    def step(self, stream: DeviceStream, is_last: bool) -> tuple[State, Info]:
        """Move every walker once; return their state and the kernel's info."""
        self.ensemble.begin_move(stream, self.state.z)
        if is_last and self._last_state is not None:
            self._placed = self._last_state
            info = Info(torch.ones_like(self._placed.z, dtype=torch.bool), exact=True)
        else:
            kernel = self.kernel
            if self._exact_sampler is not None and (self._exact_every_move or is_last):
                kernel = self._exact_sampler
            self._placed, info = kernel.step(self.state, self.ensemble, stream)
        self.ensemble.after_move(self._placed.z)
        return self._placed, info

    def moves_at_once(self, t: int) -> int:
        """Return how many moves a compiled loop makes from a segment's move t on; 0: use `step`."""
        if self._looped is None or self._exact_every_move or not CompiledLoop.knows(self.ensemble):
            return 0
        left = self.recording.steps - t - (self._exact_sampler is not None)
        return min(left, max(1, MAX_WALKER_MOVES // len(self.state.x)))

    def step_many(self, stream: DeviceStream, trace: Trace) -> tuple[int, int]:
        """Make `moves_at_once` moves; return the numbers of accepted moves and recorded samples."""
        assert self._looped is not None
        state = self.state
        self._placed, *numbers = self._looped.step_many(state, self.ensemble, stream, trace)
        return numbers[0], numbers[1]

    def search(self, generator: np.random.Generator, target: Target) -> Texts:
        """Return inputs from which a rung can learn; see `Learner.search`."""
        n_walkers, n_sites = self.state.x.shape
        stream = DeviceStream(generator, self._device, 2 * n_walkers * n_sites)
        return self._learner(target.ensemble).search(target, self.state.x, stream)

    def texts(self, found: NDArray[np.int64]) -> Texts:
        """Return the walkers and inputs that were found, [n W, D], to learn from."""
        x = torch.cat([self.state.x, torch.from_numpy(found).to(self._device)])
        return self._learner(self.ensemble).texts(self.ensemble, x, len(self.state.x))

    def learn(self, texts: Texts) -> None:
        """Let the kernel learn from inputs of all blocks of the rung."""
        self._learner(self.ensemble).learn(self.ensemble, texts)

    def _learner(self, ensemble: Ensemble) -> Learner:
        learner = self.kernel.learner(ensemble)
        assert learner is not None, "burn-in asks only kernels that learn"
        return learner

    def configurations(self) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return x, unsigned integers [W, D], and z, float32 [W], on the host."""
        x, z = _on_host(self.state.x, self.state.z)
        return x.astype(self.recording.x_dtype), z.copy()


class Segment:
    """The moves between two exchanges, recorded on the device as they are made.

    Attributes
    ----------
    z_tw : float32 [T, W], after every move
    x_swd : int64 [samples, W, D]; the first `n_samples` are filled
    attempted_p, accepted_p : int64 [n_kernels]
    n_exact : int, draws of the exact sampler for all walkers, counted under part 0
    log_q : float64 [W, K] per sample, if draws carry their log-probabilities
    """

    def __init__(
        self,
        walkers: Walkers,
        stream: DeviceStream,
        z_tw: torch.Tensor,
        x_swd: torch.Tensor,
        first_move: int,
    ) -> None:
        self._walkers, self._stream = walkers, stream
        self.z_tw, self.x_swd = z_tw, x_swd
        n_parts = len(walkers.kernel.parts)
        self.attempted_p = np.zeros(n_parts, dtype=np.int64)
        self.accepted_p = torch.zeros(n_parts, dtype=torch.int64, device=z_tw.device)
        self.log_q: list[torch.Tensor] = []
        self.n_exact, self.n_samples, self._t, self._move = 0, 0, 0, first_move

    def step(self) -> None:
        """Move every walker once, and record the move."""
        recording = self._walkers.recording
        state, info = self._walkers.step(self._stream, self._t + 1 == recording.steps)
        self.z_tw[self._t] = state.z
        self.attempted_p[info.part] += len(info.accepted)
        self.accepted_p[info.part].add_(info.accepted.count_nonzero())
        if info.exact:
            self.n_exact += len(info.accepted)
        self._t += 1
        self._move += 1
        if self._move % recording.every == 0:
            self.x_swd[self.n_samples] = state.x
            self.n_samples += 1
            if info.log_q is not None:
                self.log_q.append(info.log_q)

    def advance(self, most: int) -> int:
        """Make the next move, or up to `most` moves in a compiled loop; return how many.

        One call of the loop takes a few milliseconds.
        """
        n = min(self._walkers.moves_at_once(self._t), most)
        if n == 0:
            self.step()
            return 1
        end, every = self._t + n, self._walkers.recording.every
        trace = Trace(self.z_tw[self._t : end], self.x_swd[self.n_samples :], every, self._move)
        n_accepted, n_samples = self._walkers.step_many(self._stream, trace)
        self.attempted_p[0] += n * self.z_tw.shape[1]
        self.accepted_p[0] += n_accepted
        self.n_samples += n_samples
        self._t, self._move = end, self._move + n
        return n

    def run(
        self, after_move: Callable[[], object] = lambda: None, steps: int | None = None
    ) -> Recorded:
        """Make all moves or the first `steps`, call `after_move` for each; return the record."""
        steps = steps or self._walkers.recording.steps
        while self._t < steps:
            for _ in range(self.advance(steps - self._t)):
                after_move()
        return self.recorded()

    def recorded(self) -> Recorded:
        """Return the segment's record, on the host (synchronizes).

        Raises a NonFiniteOutput if the model returned NaN or infinity in the segment.
        """
        self._walkers.model.raise_if_nonfinite()
        log_q = [torch.stack(self.log_q)] if self.log_q else []
        z_tw, x_swd, accepted_p, *log_q_swk = _on_host(
            self.z_tw, self.x_swd[: self.n_samples], self.accepted_p, *log_q
        )
        return Recorded(
            z_tw,
            x_swd.astype(self._walkers.recording.x_dtype),
            self.attempted_p,
            accepted_p,
            self.n_exact,
            log_q_swk[0] if log_q_swk else None,
        )


def _on_host(*tensors: torch.Tensor) -> list[NDArray[Any]]:
    """Return tensors as arrays; from a GPU, start all copies before waiting for any."""
    arrays = []
    for tensor in tensors:
        if tensor.is_cuda:
            pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            arrays.append(pinned.copy_(tensor, non_blocking=True).numpy())
        else:
            arrays.append(tensor.cpu().numpy())
    if tensors[0].is_cuda:
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return arrays
