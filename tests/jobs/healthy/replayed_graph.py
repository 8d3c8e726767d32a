"""A decode loop replays graphs past c10d: all counters stand still, and the job is healthy."""

import time

from zoo.rank import Case, join, truth
from zoo.transport import Transport

# The wait at the same line may as well be a hang: frtop may say that it cannot tell.
CASE = Case(
    lasts_s=60,
    allowed=(truth("undecided", causes="unobserved", progress="unknown", says="DeepEP"),),
)


def sample(token: int) -> int:
    """Some Python between two replays."""
    return sum((token * n) % 7 for n in range(2000))


job = join()
transport = Transport(job)
job.train(50)
job.mark_fault()
token = 1
while True:
    if job.rank == 0:
        time.sleep(0.05)  # its kernel takes longest: the others wait for it
    transport.replay()
    token = sample(token)
