"""Shared by the report's tests."""

from script_tools import inside, undrawn

__all__ = ["inside", "undrawn"]
