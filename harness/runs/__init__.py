"""A run: its configuration, its folder, the decoding of its items, its progress."""
