"""The decoder on a GPU: real layer dimensions, an FP8 cache, one CUDA graph a batch size, both kernel sets."""
