"""The page: what was learned and why, in the browser, on this machine only."""
