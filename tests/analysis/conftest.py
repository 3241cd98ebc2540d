"""Shared by the scripts' tests."""

from script_tools import inside, undrawn

__all__ = ["inside", "undrawn"]
