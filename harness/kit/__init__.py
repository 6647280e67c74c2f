"""The GPU kit: what is to be known of a new machine, measured part by part, without OpenCompass."""
