"""`frtop mcp`: a Model Context Protocol server over standard input, for agents that debug."""
