"""The exact census of all inputs up to an output Z, by a tree search over prefixes."""
