"""Ids -> logits: what decoders need of a model, the ledger of cost, the architectures, and a
registry."""
