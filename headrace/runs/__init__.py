"""`headrace runs`: run directories side by side."""
