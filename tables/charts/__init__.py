"""Numbers become figures."""
