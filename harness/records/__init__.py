"""What a run leaves behind: schemas, files, hashes, and what makes its numbers credible."""
