"""The public name of `omniinput_zoo.benchmark`: python -m omniinput_hpc.benchmark."""

from omniinput_zoo.benchmark import __path__ as __path__
