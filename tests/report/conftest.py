"""Shared by the report's tests."""

from script_tools import inside

__all__ = ["inside"]
