"""Which prompts are worth rolling out next. Tried in no training of ours yet."""
