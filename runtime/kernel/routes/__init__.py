"""Routes of HTTP as data, and what their handlers need. Knows no server."""
