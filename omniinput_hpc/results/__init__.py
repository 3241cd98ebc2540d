"""Turn estimates into lines, columns and files; makes no figures."""
