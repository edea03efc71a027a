"""The kernel: log, actors, operations, channels, projections. Knows no feature and no run."""
