"""Workers of a Ray cluster; Ray is imported nowhere else."""
