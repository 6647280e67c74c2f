"""The audit: the distribution that each decoder samples from, beside the one it should sample from."""
