"""Clients of a Penstock server, for threads and for asyncio, with the interface of the embedded queue."""
