"""Blobs: bytes beside the log, there before an event names them."""
