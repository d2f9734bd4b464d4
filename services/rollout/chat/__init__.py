"""Chats with the weights being served, or with a model folder on its own."""
