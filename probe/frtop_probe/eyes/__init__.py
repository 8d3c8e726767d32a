"""What can be seen of a rank from outside: /proc, stacks, endings."""
