"""From ids to logits: what decoders need of a model, the ledger of costs, the architectures, and a
registry."""
