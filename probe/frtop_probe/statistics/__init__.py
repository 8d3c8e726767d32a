"""What ranks did within a window of time, out of their ops: pure, for agents and for files."""
