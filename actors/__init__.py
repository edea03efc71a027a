"""The rules of runs and sessions; knows no clock, socket or file, and storage as a protocol."""
