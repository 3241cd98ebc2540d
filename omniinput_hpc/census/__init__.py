"""All inputs up to an output Z, exactly: the tree of prefixes of an autoregressive model."""
