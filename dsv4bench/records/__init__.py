"""What crosses rooms: frozen result types, one file a family, and the one JSON codec for `--json` and the store."""
