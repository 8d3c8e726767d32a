"""Not slow: rank 1 warms up for 30 steps, each of which takes it 100 ms longer."""

from zoo.rank import Case, join
from zoo.steps import spin, training

CASE = Case(modes=("sync",), lasts_s=40)

job = join()
for step in training():
    if job.rank == 1 and step < 30:
        spin(0.1)
