"""Plugins: as authors declare them, as folders hold them, loaded, and loaded anew."""
