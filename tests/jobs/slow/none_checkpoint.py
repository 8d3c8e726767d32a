"""Not slow: only rank 0 writes a checkpoint and evaluates, for 2 s every 30 steps."""

from zoo.rank import Case, join
from zoo.steps import spin, training

CASE = Case(modes=("sync",), lasts_s=45)

job = join()
for step in training():
    if job.rank == 0 and step % 30 == 10:
        (job.folder / "checkpoint").write_bytes(bytes(1 << 20))
        spin(2.0)
