"""What was measured, when, on what: records in and out of the `results/` folder."""
