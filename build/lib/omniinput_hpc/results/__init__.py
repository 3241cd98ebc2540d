"""From estimates to lines, columns and files; no figures."""
