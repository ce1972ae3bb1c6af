"""Who says where a failed episode went wrong, for R3L's retries. Each file names its assumption and source."""
