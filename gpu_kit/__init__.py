"""Shows what NCCL does on one GPU: the checks of docs/nccl.md, for a machine without a network."""
