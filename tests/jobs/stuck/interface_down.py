"""All ranks have entered, but rank 2 receives no packets: its interface is down."""

from zoo.packet_filter import drop_all_incoming
from zoo.rank import fault, join

CASE = fault("stuck", 2, "cut_off", says="acknowledged")

job = join()
for odd in job.steps(2):
    if odd:
        drop_all_incoming()
    job.all_reduce()
