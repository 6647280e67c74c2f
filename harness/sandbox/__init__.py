"""Judging responses: model-written programs in sandboxes, OpenCompass's evaluators, scoring of a
run."""
