"""What is checked and made before a run starts."""
