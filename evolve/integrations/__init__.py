"""Other people's agents on our memory: an MCP server, a LangChain middleware, a LangGraph store."""
