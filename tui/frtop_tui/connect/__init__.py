"""Where frames come from: live agents, and scripted ones for tests and pictures."""
