"""Sample the prompts worth rolling out next. Each file names formula, assumption and source."""
