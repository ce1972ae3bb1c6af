"""One script per claim of the project; run as `python -m benchmarks.claims.NAME [--quick]`."""
