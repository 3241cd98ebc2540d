"""What the scripts' tests look at."""


def is_plain(code, stderr, word):
    """Exit code 2, one line on stderr, no traceback."""
    lines = stderr.splitlines()
    return code == 2 and len(lines) == 1 and lines[0].startswith("error: ") and word in lines[0]


def is_png(path):
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 10_000
