"""Transform episodes before they are compared. Each file names formula, assumption and source."""
