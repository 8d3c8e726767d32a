"""What all members of a process group must agree on, and checksums to compare it cheaply."""
