"""Executing runs: a host, one activation of a run, and what an entry sees of it."""
