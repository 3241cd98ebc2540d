"""Shared by the tests that call scripts."""

from script_tools import inside, undrawn

__all__ = ["inside", "undrawn"]
