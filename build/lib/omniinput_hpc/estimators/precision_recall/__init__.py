"""Precision and recall over all inputs, from a rule or from people's scores."""
