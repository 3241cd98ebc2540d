"""Command line: ``[mpirun -n R] python -m omniinput_hpc INPUT.toml``; see `cli.run`."""

from omniinput_hpc.parallel.signals import request

# Before importing torch and mpi4py: that takes seconds, in which a signal would kill the run.
request.install()

from omniinput_hpc.cli.run import main  # noqa: E402

# Again, since MPICH's initialization installs its own handler of SIGUSR1, which hangs.
request.install()

code = main()
# The interpreter's shutdown would restore the default handlers, which end the process.
request.ignore()
raise SystemExit(code)
