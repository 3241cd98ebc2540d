"""What others made (files, JSON, TOML, safetensors' headers): opened and read within limits.

Nothing here waits for a device or a pipe, and nothing takes time or memory beyond its limits.
"""
