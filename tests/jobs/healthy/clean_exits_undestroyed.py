"""All ranks finish and end at different times, without destroying their groups."""

import time

from zoo.ground_truth import Case
from zoo.rank import STEP_S, join

CASE = Case(lasts_s=40)


def main() -> None:
    job = join()
    for _ in range(100):
        time.sleep(STEP_S)
        job.all_reduce()
    time.sleep(4 * job.rank)


if __name__ == "__main__":
    main()
