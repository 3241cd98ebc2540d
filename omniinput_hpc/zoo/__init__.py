"""The papers' and the example models, each with its own training."""
