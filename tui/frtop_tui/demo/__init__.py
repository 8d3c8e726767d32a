"""A real job to look at: `torchrun`, a training script that does not know frtop, a fault."""
