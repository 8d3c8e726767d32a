"""As `ddp`; the script also adds up the loss. That wait is seen, those of the buckets are not."""

from jobs.slow import ddp
from zoo.ground_truth import fault

CASE = fault(
    "slow", 1, ("compute", "starved"), progress="active", late_ms=40, modes=("sync",), within_s=60
)

if __name__ == "__main__":
    ddp.main(adds_up_loss=True)
