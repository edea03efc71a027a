"""The world around the rules: surfaces, files, processes; knows no rule of a run or a session."""
