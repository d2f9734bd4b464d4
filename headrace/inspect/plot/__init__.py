"""`headrace plot`: curves of one run or several as PNG and SVG. matplotlib (extra `plot`) is imported on demand."""
