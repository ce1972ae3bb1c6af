"""Types of the journal's events about gates."""

VERDICT = "gate.verdict"
"""What one gate said about the ops of a batch: a `Verdict`."""
ALLOWANCE = "gate.allowance"
"""What the stream and the gates had spent when the gates of a batch began."""
