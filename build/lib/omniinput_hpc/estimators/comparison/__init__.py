"""Comparisons: with exact truth, between two models, between two samplers."""
