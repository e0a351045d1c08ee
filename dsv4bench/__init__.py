"""dsv4bench: why an LLM server decodes as slowly as it does, with evidence."""

__version__ = "0.1.0"
