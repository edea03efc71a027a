"""A whole server: node, surfaces and port, and what its operators see."""
