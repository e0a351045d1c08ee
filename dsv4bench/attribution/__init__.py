"""Where did the decode time go, on which unit? Trace records in, `Breakdown` and `Plan` out; pure."""
