"""Starts the broker and the services as direct children, watches them, and leaves nothing running behind."""
