"""The public name of `omniinput_zoo.census`: python -m omniinput_hpc.census."""

from omniinput_zoo.census import __path__ as __path__
