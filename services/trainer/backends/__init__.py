"""Backends compute a step: one device, FSDP2 or DeepSpeed behind one small interface."""
