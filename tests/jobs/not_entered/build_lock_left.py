"""Rank 2 waits for a build of a C++ extension whose builder was killed: its lock file is left."""

from torch.utils.file_baton import FileBaton

from zoo.rank import fault, join

CASE = fault("not_entered", 2, "lock", says="C++ extension")

job = join()
lock = job.folder / "lock"
for odd in job.steps(2):
    if odd:
        lock.touch()
        FileBaton(str(lock)).wait()
    job.all_reduce()
