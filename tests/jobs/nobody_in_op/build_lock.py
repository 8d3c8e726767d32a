"""Before the first op all ranks wait for a build of a C++ extension whose builder was killed."""

from torch.utils.file_baton import FileBaton

from zoo.ground_truth import Case, Truth
from zoo.rank import join

CASE = Case(
    (
        Truth(
            ("not_entered",),
            culprits=(0, 1, 2, 3),
            causes=("lock",),
            says=("nobody is in an op", "C++ extension"),
        ),
    ),
    modes=("sync",),
    within_s=120.0,
)


def main() -> None:
    job = join()
    lock = job.folder / "lock"
    lock.touch()
    job.mark_fault()
    FileBaton(str(lock)).wait()


if __name__ == "__main__":
    main()
