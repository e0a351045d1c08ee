"""`python -m dsv4bench`."""

from dsv4bench.cli.main import main

main()
