"""Outputs other than a model's own: ``[output]``, what z is."""
