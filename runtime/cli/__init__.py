"""The command line: parses, asks, shows; knows none of the rules.

Its modules import what they need when a command runs, so that ``perdure --help`` answers at once.
"""

from perdure.runtime.cli.program import main as main
