"""Models for the training step: loaded whole or deferred, with adapters or a quantized base."""
