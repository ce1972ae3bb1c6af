"""The mistake notebook: failures are found, clustered, written up as notes, merged, and used at test time."""
