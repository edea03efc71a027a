"""A feature that lives in the tests alone: counters, whose sessions fold the runs in their scope.

It proves that a feature is one package and one line: nothing outside of this package knows it.
"""
