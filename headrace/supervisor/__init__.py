"""Starts the broker and the services as direct children, monitors them, and leaves nothing running behind."""
