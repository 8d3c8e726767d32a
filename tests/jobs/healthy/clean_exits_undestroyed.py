"""All ranks finish and end at different times, without destroying their groups."""

import time

from zoo.rank import Case, join

CASE = Case(lasts_s=40)


job = join()
job.train(100)
time.sleep(4 * job.rank)
