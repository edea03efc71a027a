"""One attempt of one entry, from queued to its end. Knows neither clocks nor who calls."""
