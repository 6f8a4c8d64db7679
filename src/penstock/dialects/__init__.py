"""Each family of clients in its own words, translated once. Pure: no sockets, no clock."""
