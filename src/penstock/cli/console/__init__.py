"""`penstock cli`: an interactive console for raw commands."""
