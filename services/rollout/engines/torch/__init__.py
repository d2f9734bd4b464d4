"""The embedded engine: Llama and Qwen models decoded with torch, continuous batching, on a CPU or one GPU."""
