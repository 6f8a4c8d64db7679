"""Reading tubes and jobs as Tarantool's spaces: `box.space.NAME:select`, indexes, SELECT requests, the schema."""
