"""One way to ask, whoever holds the log: this process, another one, a server. Knows no feature."""
