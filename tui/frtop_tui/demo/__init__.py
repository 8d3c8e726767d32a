"""The demo's job: torchrun, a training script that knows nothing of frtop, and a fault."""
