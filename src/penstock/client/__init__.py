"""Clients of a Penstock server, blocking and for asyncio, with the interface of the embedded queue."""
