"""Runs: the feature that creates, shows, changes and lists them. Knows no surface."""
