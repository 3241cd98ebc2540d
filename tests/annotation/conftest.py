"""Shared by the annotation's tests."""

from script_tools import inside

__all__ = ["inside"]
