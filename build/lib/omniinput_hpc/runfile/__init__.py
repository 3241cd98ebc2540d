"""The run file and its side files: layout, commits, reading, locks (HDF5)."""
