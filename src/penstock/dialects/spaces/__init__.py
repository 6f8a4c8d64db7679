"""Reading what the server has as Tarantool's spaces: `box.space.NAME:select`, indexes, SELECT requests, the schema."""
