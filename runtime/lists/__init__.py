"""Lists of runs: a projection of the log in a file that may be thrown away."""
