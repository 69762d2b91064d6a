"""DECIDES. Pure functions of values: no asyncio, clock, randomness, logging or client library."""
