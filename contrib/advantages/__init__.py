"""How much better each step was than what it is compared with. Tried in no training of ours yet."""
