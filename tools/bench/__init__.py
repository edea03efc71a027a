"""Measurements of Perdure, each beside a baseline in the same run: ``python -m tools.bench``."""
