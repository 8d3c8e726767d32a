"""The demo's job: torchrun, a training script that knows nothing about frtop, and a fault."""
