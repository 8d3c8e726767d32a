"""Defines what all members of a process group must agree on; checksums compare it cheaply."""
