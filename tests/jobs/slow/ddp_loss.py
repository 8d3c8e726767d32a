"""As `ddp`; the script also adds up the loss. That wait is seen, those of the buckets are not."""

from jobs.slow import ddp
from zoo.rank import slow

CASE = slow(1, late_ms=40)

if __name__ == "__main__":
    ddp.main(adds_up_loss=True)
