"""All ranks wait for a build of a C++ extension whose builder was killed: at first, or later on."""

from torch.utils.file_baton import FileBaton

from zoo.rank import fault, join

CASE = fault(
    "not_entered", (0, 1, 2, 3), "lock", says=("no rank is in an op", "C++ extension"), within_s=120
)

job = join()
lock = job.folder / "lock"
lock.touch()
for odd in job.steps(at=40 if job.late else 0):
    if odd:
        FileBaton(str(lock)).wait()
    job.all_reduce()
