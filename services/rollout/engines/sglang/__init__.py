"""The SGLang engine: a separate server, driven over HTTP. Imports neither torch nor sglang."""
