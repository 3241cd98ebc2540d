"""The pilot: what `init` measures of a model, and the input file that it writes from that."""
