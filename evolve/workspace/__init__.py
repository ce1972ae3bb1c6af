"""Operations on a workspace: the functions that commands and `evolve.open` share, and the facade over them."""
