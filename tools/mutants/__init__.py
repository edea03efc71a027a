"""Change the rules of actors a little, many times over, and see whether a test notices."""
