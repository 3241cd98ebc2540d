"""A run in progress: rungs, walkers, moves, exchanges, commits."""
