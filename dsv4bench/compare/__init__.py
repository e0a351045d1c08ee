"""Is B really different from A? Pure functions of values: arms in, verdicts, laws and gate outcomes out."""
