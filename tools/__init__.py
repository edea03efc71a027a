"""Programs for people who work on Perdure: benchmarks, simulation, chaos. Not in the wheel."""
