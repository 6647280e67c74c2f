"""The rows of tables: presets of decoders, groups of them, DDOSP's schedules."""
