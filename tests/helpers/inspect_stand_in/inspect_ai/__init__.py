"""What stands in for inspect_ai where it is not installed: see `inspect_logs`."""
