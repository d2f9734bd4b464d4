"""`headrace runs`: lists and compares run directories."""
