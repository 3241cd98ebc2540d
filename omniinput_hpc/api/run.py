"""An open run file: `omniinput_hpc.open` returns a `Run`."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from omniinput_hpc.api.estimates import Estimates
from omniinput_hpc.api.samples import Samples
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.populations import log_q_of
from omniinput_hpc.results.diagnosis import DiagnosisResult, diagnosis_of
from omniinput_hpc.results.difference import MAX_CELLS, DifferenceResult, difference_of
from omniinput_hpc.results.names import names_of
from omniinput_hpc.results.observables import AverageResult, JointResult, average_of, joint_of
from omniinput_hpc.runfile import reader
from omniinput_hpc.untrusted.parsing import parse_toml

if TYPE_CHECKING:
    import xarray

MAX_SAMPLES = 1_000_000


class Run(Estimates):
    """An open run file, of a finished or a live run, with the rounds committed when it was opened.

    Use it as a context manager, or call `close`. It takes no lock.

    Attributes
    ----------
    path : Path
    reader : `runfile.reader.RunReader`, every dataset of the file
    """

    def __init__(self, path: str | Path, damaged: bool = False) -> None:
        on_damage = reader.warn if damaged else reader.refuse
        self.reader = reader.open_run(path, on_damage)
        self.path = Path(path)
        super().__init__([self.reader])

    @property
    def rounds(self) -> int:
        """Number of committed rounds."""
        return self.reader.rounds

    @property
    def betas(self) -> FloatArray:
        """The rungs' betas, float64 [K]; NaN for a flat-histogram rung."""
        return self.reader.beta_k

    @property
    def config(self) -> dict[str, Any]:
        """The input file, as dictionaries."""
        return parse_toml(self.reader.config_toml)

    def samples(
        self, z: tuple[float, float] = (-np.inf, np.inf), rungs: Sequence[int] | None = None
    ) -> Samples:
        """Return the recorded inputs with z[0] <= output < z[1], of some or all rungs.

        Only rungs with lambda = 0 count (see ``[ladder] lambdas``). They are numbered from 0.

        Raises
        ------
        UserError
            More than a million inputs.
        EstimateError
            The density, which gives the weights, cannot be estimated.
        """
        low, high = z
        density, data = self.density().estimate, self.reader.data
        log_q = log_q_of(data)
        wanted = np.zeros(len(data.beta_k), dtype=bool)
        wanted[slice(None) if rungs is None else list(rungs)] = True
        density = replace(density, n_k=np.where(wanted, density.n_k, 0))
        found, n = [], 0
        for round_, (x, z32_ks) in enumerate(data.source.samples()):
            log_q_ksk = next(log_q) if log_q is not None else None
            z_ks = z32_ks.astype(np.float64)  # NumPy would round the ends of z to float32
            k, s = np.nonzero((z_ks >= low) & (z_ks < high) & wanted[:, None])
            z_n = z_ks[k, s]
            q_n = None if log_q_ksk is None else log_q_ksk[k, s]
            weight = -density.log_mixture(z_n, q_n) if len(z_n) else np.zeros(0)
            found.append((x[k, s], z_n, np.full(len(k), round_), k, data.beta_k[k], weight))
            n += len(k)
            if n > MAX_SAMPLES:
                raise UserError(
                    f"more than {MAX_SAMPLES:,} recorded inputs: choose a narrower z or fewer rungs"
                )
        x, z_n, round_n, k, beta, weight = (
            np.concatenate(parts) for parts in zip(*found, strict=True)
        )
        return Samples([self.reader], x, z_n, round_n, k, beta, weight)

    def diagnose(self) -> DiagnosisResult:
        """Return how well the run mixes, and what to change.

        Raises
        ------
        EstimateError
            No committed round.
        """
        return diagnosis_of(self.reader, checked=False)

    def average(
        self, observable: str, z: tuple[float, float] | None = None, width: float | None = None
    ) -> AverageResult:
        """Return the mean of an observable, named as for ``omniinput average``, in bins of z.

        Raises
        ------
        UserError
            There is no such observable.
        EstimateError
            No recorded samples inside the bins, or no density.
        """
        return average_of(self.reader, observable, z, width)

    def joint(
        self, observable: str, z: tuple[float, float] | None = None, width: float | None = None
    ) -> JointResult:
        """Return the joint density of z and an observable; raises as `average` does."""
        return joint_of(self.reader, observable, z, width)

    def difference(
        self,
        other: Run,
        z: tuple[float, float] | None = None,
        width: float | None = None,
        cells: int = MAX_CELLS,
    ) -> DifferenceResult:
        """Return the difference of both models' outputs, over the inputs with either z in a range.

        See ``omniinput difference``, whose defaults these are. Each model must have evaluated the
        samples of the other's run (``omniinput rescore``).

        Raises
        ------
        UserError
            It has not, or the models have different inputs.
        EstimateError
            There are no samples in the range, or the runs have different bins there.
        """
        first, second = names_of([self.path, other.path])
        return difference_of((self.reader, other.reader), (first, second), z, width, cells)

    def to_arviz(self) -> xarray.DataTree:
        """Return the recorded outputs as a DataTree for ArviZ: see `api.arviz`."""
        from omniinput_hpc.api.arviz import to_arviz

        return to_arviz(self.reader)

    def close(self) -> None:
        """Close the file; results that exist stay valid."""
        self.reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _facts(self) -> dict[str, str]:
        run = self.reader
        return {
            "rounds": f"{run.rounds} of {run.rounds_planned}",
            "model": f"{run.config.model.kind}, {run.fingerprint}",
            "inputs": f"{run.n_sites} sites of {run.n_values} values",
            **({"law": run.config.law_name} if run.config.law else {}),
            "rungs": f"{len(self.betas)}, each with {run.walkers} walkers",
            "bins": f"{len(run.edges) - 1}, of z from {run.edges[0]:g} to {run.edges[-1]:g}",
        }

    def __repr__(self) -> str:
        facts = [f"  {name}: {text}" for name, text in self._facts().items()]
        return "\n".join([f"Run {self.path}", *facts])

    def _repr_html_(self) -> str:
        escape = html.escape
        rows = [
            f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>"
            for name, text in self._facts().items()
        ]
        title = f"<strong>Run {escape(str(self.path))}</strong>"
        return f"<div>{title}<table>{''.join(rows)}</table></div>"
