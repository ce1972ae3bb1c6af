"""What can be done with a workspace: the functions that commands and `evolve.open` share, and the facade over them."""
