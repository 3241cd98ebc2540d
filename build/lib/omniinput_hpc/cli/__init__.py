"""The command line: from arguments to an exit code."""
