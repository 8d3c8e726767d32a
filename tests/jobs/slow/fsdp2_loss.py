"""As `fsdp2`; the script also adds up the loss. That wait is seen, those of the shards are not."""

from jobs.slow import fsdp2
from zoo.ground_truth import fault

CASE = fault(
    "slow", 1, ("compute", "starved"), progress="active", late_ms=40, modes=("sync",), within_s=60
)

if __name__ == "__main__":
    fsdp2.main(adds_up_loss=True)
