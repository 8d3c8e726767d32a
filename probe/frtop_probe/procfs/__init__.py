"""What the kernel and py-spy show of a rank: processes, stacks, exit status, connections."""
