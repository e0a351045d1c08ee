"""The two kernel sets in torch, for a machine without a GPU: small, readable, slow in the same places."""
