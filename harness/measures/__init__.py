"""Records become numbers: frames, intervals, comparisons of runs. Nothing is formatted here."""
