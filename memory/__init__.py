"""Memory of what happened: records, the journal (SQLite), vector indexes, embedders and recall."""
