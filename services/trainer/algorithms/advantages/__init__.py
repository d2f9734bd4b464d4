"""Advantages and returns as pure functions of rewards and values."""
