"""`python -m evolve` is the command `evolve`."""

from evolve.cli.main import main

main()
