"""What every command has in common: options, texts, tables. Knows no feature."""
