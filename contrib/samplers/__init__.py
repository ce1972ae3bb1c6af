"""Sample the prompts worth rolling out next. Tried in no training of ours yet."""
