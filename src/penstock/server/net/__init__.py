"""The connections of clients: listeners, RESP and IPROTO connections, access control, limits, HTTP."""
