"""Command line: ``[mpirun -n R] python -m omniinput_hpc INPUT.toml``; see `launch.py`."""

from omniinput_hpc.parallel.signals import request

# Before torch and mpi4py: their imports take seconds, and a signal in them would kill the run.
request.install()

from omniinput_hpc.cli.run import main  # noqa: E402

# Once more: MPICH's initialization takes SIGUSR1 for itself, and then hangs where it is alone.
request.install()

code = main()
# The interpreter's own end would give the signals back their deadly defaults.
request.ignore()
raise SystemExit(code)
