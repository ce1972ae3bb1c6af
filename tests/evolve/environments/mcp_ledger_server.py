"""A real MCP server over stdio for the tests: a ledger whose state lives as long as its process."""

import asyncio
import os

from mcp.server.fastmcp import FastMCP

server = FastMCP("ledger", log_level="ERROR")
balances: dict[str, int] = {"ann": 10, "bob": 0}


@server.tool()
def pay(sender: str, receiver: str, amount: int) -> str:
    """Move money from one account to another."""
    if balances[sender] < amount:
        raise ValueError(f"{sender} has only {balances[sender]}")
    balances[sender] -= amount
    balances[receiver] += amount
    return f"paid {amount}"


@server.tool()
def balance(account: str) -> int:
    """Return the balance of an account."""
    return balances[account]


@server.tool()
async def think() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return "42"


@server.tool()
def crash() -> str:
    """End the server."""
    os._exit(3)


server.run("stdio")
