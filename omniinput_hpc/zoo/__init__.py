"""The public name of the modules of `omniinput_zoo`, which commands and input files use."""

from omniinput_zoo import __path__ as __path__
