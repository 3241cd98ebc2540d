"""Reading untrusted files (JSON, TOML, tables, model headers) within limits of time and memory.

Nothing here waits for a device or a pipe.
"""
