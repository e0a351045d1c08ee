"""The grouped MoE for people who serve: a function with the shapes of an engine's fused-MoE call, and two plugs."""
