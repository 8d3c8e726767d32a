"""As `fsdp2`; the script also adds up the loss. That wait is seen, those of the shards are not."""

from jobs.slow import fsdp2
from zoo.rank import slow

CASE = slow(1, late_ms=40)

if __name__ == "__main__":
    fsdp2.main(adds_up_loss=True)
