"""Secrets of runs: sealed outside of the log, taken out of what people read."""
