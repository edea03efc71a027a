"""The Run protocol over HTTP: parse, ask, render. It knows no rule and nothing of the log."""
