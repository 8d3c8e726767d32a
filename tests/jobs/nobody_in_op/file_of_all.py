"""Every rank reads the same file, and its storage does not answer."""

from zoo.ground_truth import Case, Truth
from zoo.rank import join

CASE = Case(
    (
        Truth(
            ("not_entered",),
            culprits=(0, 1, 2, 3),
            causes=("file_io",),
            says=("no rank is in an op", "vocabulary"),
        ),
    ),
    within_s=120.0,
)

job = join()
vocabulary = job.pipe("vocabulary")
for odd in job.steps():
    if odd:
        vocabulary.read_bytes()
    job.all_reduce()
