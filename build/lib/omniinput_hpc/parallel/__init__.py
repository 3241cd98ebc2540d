"""Ranks as one program: messages, signals and agreed stops (MPI)."""
