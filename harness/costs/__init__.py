"""The benchmark: what passes, decoders, records and training cost on this machine."""
