"""Renders messages and tools to token ids. Episodes and the preparation of given conversations share the rendering."""
