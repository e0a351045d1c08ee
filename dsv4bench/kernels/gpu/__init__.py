"""The kernels in Triton: the fallbacks of the campaign, re-implemented, and what replaces them."""
