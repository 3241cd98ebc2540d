"""Exports to other programs: results as Every Eval Ever, scored inputs for Inspect, data sets."""
