"""Known faults of libraries: which of them an op that hangs may be, beside the verdict."""
