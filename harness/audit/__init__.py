"""The audit: the distribution that each decoder samples from, against the one it should sample
from."""
