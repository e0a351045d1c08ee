"""The hot kernels of a DeepSeek-V4 decode step, twice: as the slow fallbacks work, and as they could."""
