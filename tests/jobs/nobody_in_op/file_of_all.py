"""Every rank reads the same file, and its storage does not answer."""

from zoo.rank import fault, join

CASE = fault(
    "not_entered", (0, 1, 2, 3), "file_io", says=("no rank is in an op", "vocabulary"), within_s=120
)

job = join()
vocabulary = job.pipe("vocabulary")
for odd in job.steps():
    if odd:
        vocabulary.read_bytes()
    job.all_reduce()
