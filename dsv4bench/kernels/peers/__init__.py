"""Public kernels for the same two jobs, used when they can be imported and never required."""
