"""Ids -> logits: what decoders need of a model, the ledger of cost, one file per architecture, and a registry."""
