"""A Potts model: z is the energy -sum_i h_i(x_i) - sum_{i<j} J_ij(x_i, x_j).

The model's own distribution is exp(-z), that of beta = 1.
"""

from __future__ import annotations

import torch
from torch.nn.functional import embedding_bag

from omniinput_hpc.config import Potts as Options
from omniinput_hpc.models import potts_file


class Potts:
    """See the module's docstring, and `models.protocol` for the methods.

    Fields and couplings are rows i q + a of two tables, for value a at site i.

    Attributes
    ----------
    rounding : how much more z may differ than that of a small model: each field is a float32 sum of
        D couplings, so z errs by about D / 6 spacings of a field's typical size
    """

    def __init__(self, options: Options, device: str) -> None:
        found = potts_file.read(options)
        self.n_sites, self.n_values = found.h.shape
        n_rows = self.n_sites * self.n_values
        self._h = torch.from_numpy(found.h).to(device).flatten()
        self._coupling = torch.from_numpy(found.coupling).to(device).reshape(n_rows, n_rows)
        self._first = self.n_values * torch.arange(self.n_sites, device=device)
        field = self._field(torch.arange(self.n_sites, device=device)[None] % self.n_values)
        typical = float(field.square().mean().sqrt())
        self.rounding = 2.0 * torch.finfo(torch.float32).eps * self.n_sites * typical
        self._shown = potts_file.shown_by(found.alphabet)

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of x, int64 [W, D]."""
        return self._energy(x + self._first, self._field(x))

    def output_and_gradient(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and dz/d one_hot(x), float32 [W, D, n_values]."""
        field = self._field(x)
        return self._energy(x + self._first, field), -field.view(*x.shape, self.n_values)

    def _field(self, x: torch.Tensor) -> torch.Tensor:
        """Return h_i(a) + sum_j J_ij(a, x_j) of each row, float32 [W, D n_values]."""
        return embedding_bag(x + self._first, self._coupling, mode="sum") + self._h

    def _energy(self, rows: torch.Tensor, field: torch.Tensor) -> torch.Tensor:
        """Return the energy, float32 [W]: the sum over fields counts each pair twice."""
        twice = (self._h[rows] + field.gather(1, rows)).sum(dim=1, dtype=torch.float64)
        return -0.5 * twice.float()

    def change(self, x: torch.Tensor, site: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return the change of z if one site of each input is set to a value, float64 [W]."""
        rows, old = x + self._first, x.gather(1, site[:, None])[:, 0]
        before, after = (self._of_site(site * self.n_values + v, rows) for v in (old, value))
        return after - before

    def render(self, x: torch.Tensor) -> list[str]:
        """Return the letters of each input."""
        return list(self._shown.show(x.cpu().numpy()))

    def _of_site(self, row: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return the energy of one site's value [W] among the values of all sites, float64 [W]."""
        pairs = self._coupling[row[:, None], rows].double()  # 0 within the site
        return -self._h[row].double() - pairs.sum(dim=1)


def build(options: Options, device: str) -> Potts:
    """Read a Potts model (see `models.table.build`)."""
    return Potts(options, device)
