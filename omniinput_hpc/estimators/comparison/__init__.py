"""Comparisons with exact values, between two models, and between two samplers."""
