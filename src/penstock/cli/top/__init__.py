"""`penstock top`: the screen and its data."""
