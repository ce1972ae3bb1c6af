"""The `evolve` command: one file per group of verbs. Starts without torch, langgraph or chromadb."""
