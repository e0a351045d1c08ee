"""What does a file say? A file in, a `KernelTrace`, `KernelTable`, `KernelCounters` or `DeviceSamples` out."""
