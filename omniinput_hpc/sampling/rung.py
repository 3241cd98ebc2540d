"""One rung: its walkers, who they are, and what they record in a round."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import rng
from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import Histogram
from omniinput_hpc.kernels import Kernel
from omniinput_hpc.kernels.wang_landau import FlatOnDevice
from omniinput_hpc.runfile.layout import N_LEARNING, Geometry
from omniinput_hpc.runfile.reader import Checkpoint
from omniinput_hpc.sampling.anchors import Anchors
from omniinput_hpc.sampling.walkers import Batch
from omniinput_hpc.tempering.ensembles import Ensemble, log_weight_b


class Rung:
    """Rung k of the ladder.

    Attributes
    ----------
    k : int
    batch : the walkers' configurations
    beta : float, NaN where the rung's histogram is to be flat
    host_ensemble : the ensemble as exchanges have it
    walker_w : int32 [W], the identity of the walker in each slot
    direction_w : int8 [W], see `ladder.count_round_trips`
    """

    def __init__(
        self,
        k: int,
        batch: Batch,
        kernel: Kernel,
        anchors: Anchors,
        geometry: Geometry,
        edges: NDArray[np.float64],
        seed: int,
    ) -> None:
        self.k, self.batch, self._g, self._seed = k, batch, geometry, seed
        self._kernel, self._anchors, self._edges = kernel, anchors, edges
        self.host_ensemble: Ensemble
        self.beta = np.nan
        w, n_samples = geometry.n_walkers, geometry.samples_per_round // geometry.n_walkers
        self.walker_w = np.arange(k * w, (k + 1) * w, dtype=np.int32)
        self.direction_w = np.zeros(w, dtype=np.int8)
        self.histogram = Histogram(edges, w)
        self._x_swd = np.zeros((n_samples, w, geometry.n_sites), dtype=geometry.x_dtype)
        self._z_sw = np.zeros((n_samples, w), dtype=np.float32)
        self._walker_sw = np.zeros((n_samples, w), dtype=np.int32)
        n_log_q = geometry.n_rungs if geometry.log_q else 0
        self._log_q_swk = np.zeros((n_samples, w, n_log_q))

    def sample_by(self, ensemble: Ensemble, on_device: Ensemble, beta: float) -> None:
        """Take an ensemble, as the host and as the device have it; its anchor comes with it."""
        self.host_ensemble, self.beta = ensemble, beta
        anchor, always = self._anchors.of(ensemble)
        self.batch.use(on_device, anchor, always)

    @property
    def model_beta(self) -> float | None:
        """The beta of the model's own distribution, where it can be drawn from."""
        return self._anchors.model_beta

    @property
    def learner(self) -> FlatOnDevice | None:
        """The ensemble that learns in burn-in, if it is of that kind."""
        ensemble = self.batch.ensemble
        return ensemble if isinstance(ensemble, FlatOnDevice) else None

    def start(self) -> None:
        """Put the walkers on uniformly random inputs (see `starts` for language models' cold)."""
        random = rng.generator(self._seed, "start", self.k)
        cold = self._anchors.cold_start(self.beta, random)
        if cold is not None:
            x = cold.cpu().numpy().astype(self._g.x_dtype)
        else:
            shape = (self._g.n_walkers, self._g.n_sites)
            x = random.integers(self._g.n_values, size=shape).astype(self._g.x_dtype)
        self.batch.place(x, self.batch.evaluate(x))

    def resume(self, checkpoint: Checkpoint, index: int) -> None:
        """Put the walkers where a checkpoint has them; `index` is this rung's place in it."""
        self.walker_w = checkpoint.walker_kw[index].copy()
        self.direction_w = checkpoint.direction_kw[index].copy()
        self.histogram.lane_counts_gb[:] = checkpoint.lane_counts_kgb[index]
        self.histogram.z_sum_b[:] = checkpoint.z_sum_kb[index]
        adapted = {name: values[self.k] for name, values in checkpoint.adapted.items()
                   if name not in ("beta", "swaps")}  # fmt: skip
        self._kernel.tuned[:] = adapted["kernel"]
        if self.learner is not None:
            self.learner.restore(adapted["entropy"], adapted["visits"], adapted["learning"])
            self.learner.to_host()
        self.batch.place(checkpoint.x_kwd[index], checkpoint.z_kw[index])

    def begin_round(self) -> None:
        """Begin to count a round."""
        self.histogram.clear_round()
        self._n_samples = 0
        self.attempted_p = np.zeros(self._g.n_kernels, dtype=np.int64)
        self.accepted_p = np.zeros(self._g.n_kernels, dtype=np.int64)

    def record(self, every: int, first_move: int) -> None:
        """Count the segment that the batch has just moved through (see `Batch.collect`)."""
        recorded = self.recorded
        steps = len(recorded.z_tw)
        self.histogram.add(recorded.z_tw)
        self.attempted_p += recorded.attempted_p
        self.accepted_p += recorded.accepted_p
        moves = first_move + 1 + np.arange(steps)
        some = slice(self._n_samples, self._n_samples + len(recorded.x_swd))
        self._x_swd[some] = recorded.x_swd
        self._z_sw[some] = recorded.z_tw[moves % every == 0]
        self._walker_sw[some] = self.walker_w
        if recorded.log_q_swk is not None:
            self._log_q_swk[some] = recorded.log_q_swk
        self._n_samples = some.stop

    def adapt(self) -> None:
        """Tune the kernel and learn the ensemble from the segment just recorded (burn-in only)."""
        self._kernel.adapt(self.recorded.attempted_p, self.recorded.accepted_p)
        if self.learner is not None:
            self.learner.after_segment()
            self._end_learning_inside()
            self.learner.to_host()

    def freeze(self) -> None:
        """End learning, whether or not it has come to its end.

        Raises
        ------
        UserError
            No walker has come into the window.
        """
        if self.learner is not None:
            self.learner.freeze()
            self._end_learning_inside()
            self.learner.to_host()

    def _end_learning_inside(self) -> None:
        """Once the weights are frozen, put walkers that are outside the window beside others.

        The rest of burn-in draws copies apart. A walker outside would never come in: there its
        weight is 0, and every move is as good as any other.
        """
        if self.learner is None or self.learner.learning:
            return
        x, z = self.batch.walkers()
        inside_w = self.learner.flat.inside(z)
        if inside_w.all():
            return
        if not inside_w.any():
            low, high = (self._edges[i] for i in self.learner.flat.window)
            raise UserError(
                f"no walker has come into the window [{low:g}, {high:g}] of rung {self.k}: raise "
                "run.burn_in, or let the windows of [wang_landau] overlap more"
            )
        take = np.arange(len(z))
        donors = np.flatnonzero(inside_w)
        take[~inside_w] = np.resize(donors, int((~inside_w).sum()))
        self.batch.place(x[take], z[take])

    def collect(self) -> None:
        """Take the batch's record of the segment to the host."""
        self.recorded = self.batch.collect()

    def values(self) -> dict[str, NDArray[Any]]:
        """Return this rung's part of a round's commit, by dataset."""
        x, z = self.batch.walkers()
        learnt = self._g.n_bins + 2 if self._g.flat else 0
        learning = {
            "entropy": np.full(learnt, np.nan),
            "visits": np.zeros(learnt),
            "learning": np.zeros(N_LEARNING),
        }
        if self.learner is not None:
            learning = self.learner.numbers()
        values = {
            "ladder/beta": np.asarray(self.beta),
            "ensemble/log_weight": log_weight_b(self.host_ensemble, self._edges),
            "state/beta": np.asarray(self.beta),
            "state/kernel": self._kernel.tuned,
            **{f"state/{name}": numbers for name, numbers in learning.items()},
            "histogram/counts": self.histogram.counts_b.astype(np.uint32),
            "histogram/outside": self.histogram.outside.astype(np.uint32),
            "histogram/lane_counts": self.histogram.lane_counts_gb,
            "histogram/z_sum": self.histogram.z_sum_b,
            "samples/x": self._x_swd.reshape(-1, self._g.n_sites),
            "samples/z": self._z_sw.reshape(-1),
            "samples/walker": self._walker_sw.reshape(-1),
            "exchange/walker": self.walker_w,
            "kernel/attempted": self.attempted_p,
            "kernel/accepted": self.accepted_p,
            "state/x": x,
            "state/z": z,
            "state/walker": self.walker_w,
            "state/direction": self.direction_w,
        }
        if self._g.log_q:
            values["samples/log_q"] = self._log_q_swk.reshape(-1, self._g.n_rungs)
        return values
