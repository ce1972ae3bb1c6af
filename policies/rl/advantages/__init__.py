"""How much better each step was than what it is compared with. Each file names formula, assumption and source."""
