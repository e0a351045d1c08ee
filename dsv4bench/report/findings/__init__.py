"""PROFILE_FINDINGS.md, one file a section where it is long; `sections.py` has the rest and their order."""
