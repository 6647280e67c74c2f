"""Training: objectives, data, recipes, transformers' Trainer."""
