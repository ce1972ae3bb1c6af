"""Measured claims: each script in `claims/` measures one, `table` prints what is stored."""
