"""The SGLang engine: a server of its own, driven over HTTP. Nothing here imports torch or sglang."""
