"""Coordination of ranks with MPI: communication, signals and agreed stops."""
