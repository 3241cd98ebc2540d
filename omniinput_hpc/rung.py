"""One rung: its walkers, who they are, and what they record in a round."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import streams
from omniinput_hpc.kernels.batch import Batch
from omniinput_hpc.recorders import Histogram
from omniinput_hpc.run_reader import Checkpoint
from omniinput_hpc.store import Geometry


class Rung:
    """Rung k of the ladder.

    Attributes
    ----------
    k : int
    batch : the walkers' configurations
    walker_w : int32 [W], the identity of the walker in each slot
    direction_w : int8 [W], see `ladder.count_round_trips`
    """

    def __init__(
        self, k: int, batch: Batch, geometry: Geometry, edges: NDArray[np.float64], seed: int
    ) -> None:
        self.k, self.batch, self._g, self._seed = k, batch, geometry, seed
        w, n_samples = geometry.n_walkers, geometry.samples_per_round // geometry.n_walkers
        self.walker_w = np.arange(k * w, (k + 1) * w, dtype=np.int32)
        self.direction_w = np.zeros(w, dtype=np.int8)
        self.histogram = Histogram(edges, w)
        self._x_swd = np.zeros((n_samples, w, geometry.n_sites), dtype=geometry.x_dtype)
        self._z_sw = np.zeros((n_samples, w), dtype=np.float32)
        self._walker_sw = np.zeros((n_samples, w), dtype=np.int32)

    def start(self) -> None:
        """Put the walkers on uniformly random inputs."""
        shape = (self._g.n_walkers, self._g.n_sites)
        random = streams.generator(self._seed, "start", self.k)
        x = random.integers(self._g.n_values, size=shape).astype(self._g.x_dtype)
        self.batch.place(x, self.batch.evaluate(x))

    def resume(self, checkpoint: Checkpoint, index: int) -> None:
        """Put the walkers where a checkpoint has them; `index` is this rung's place in it."""
        self.walker_w = checkpoint.walker_kw[index].copy()
        self.direction_w = checkpoint.direction_kw[index].copy()
        self.histogram.lane_counts_gb[:] = checkpoint.lane_counts_kgb[index]
        self.histogram.z_sum_b[:] = checkpoint.z_sum_kb[index]
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
        self._n_samples = some.stop

    def collect(self) -> None:
        """Take the batch's record of the segment to the host."""
        self.recorded = self.batch.collect()

    def values(self) -> dict[str, NDArray[Any]]:
        """Return this rung's part of a round's commit, by dataset."""
        x, z = self.batch.walkers()
        return {
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
