"""Agents that listen on ports behind a host on the way: one ssh connection carries all of them."""
