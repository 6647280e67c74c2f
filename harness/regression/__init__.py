"""The gate: records against golden ones, speed against another revision."""
