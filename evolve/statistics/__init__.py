"""Statistics of gates: paired counts and intervals, an online error level, tests that may stop at any time. Pure."""
