"""Figures (matplotlib): one style, one palette."""
