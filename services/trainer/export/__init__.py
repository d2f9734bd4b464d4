"""Trained models as Hugging Face folders for use outside the run."""
