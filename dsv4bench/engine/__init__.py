"""A small decoder of DeepSeek-V4-Flash's structure, with random weights, behind an OpenAI-compatible server."""
