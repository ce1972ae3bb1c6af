"""A workspace served to many: REST, MCP and pages behind tokens."""
