"""Shared by the scripts' tests."""

from script_tools import inside

__all__ = ["inside"]
