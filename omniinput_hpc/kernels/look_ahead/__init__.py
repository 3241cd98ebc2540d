"""`look_ahead`: the learned weights of continuations, and the search that they are learned from."""
