"""The benchmark: what passes, decoders, batches and training cost on this machine."""
