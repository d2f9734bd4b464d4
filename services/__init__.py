"""The services; they never import each other."""
