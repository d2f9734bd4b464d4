"""One training step: batch, experience, policy and critic update, and their reductions."""
