"""Finders of a failed episode's pivot, for R3L's retries. Each file names its assumption and source."""
