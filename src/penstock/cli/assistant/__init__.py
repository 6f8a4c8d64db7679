"""The tools that `penstock mcp` offers to an assistant."""
