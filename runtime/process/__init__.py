"""Entries in processes of their own. What a process says is a stranger's word; it knows one run."""
