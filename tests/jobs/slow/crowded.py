"""All ranks need 20 ms of a processor in each step; rank 1's is shared with four that spin.

How late that makes it depends on what else runs on the host.
"""

import os
import subprocess
import sys
import time

from zoo.rank import join, slow
from zoo.steps import training

CASE = slow(1, "starved", within_s=90)
SPIN = "import ctypes; ctypes.CDLL(None).prctl(1, 9)\nwhile True: pass"
"""It ends with the rank: PR_SET_PDEATHSIG."""

job = join()
cores = sorted(os.sched_getaffinity(0))
own = {cores[-1]} if job.rank == 1 else set(cores[:-1] or cores)
os.sched_setaffinity(0, own)
if job.rank == 1:
    for _ in range(4):
        subprocess.Popen([sys.executable, "-c", SPIN])
for _ in training():
    job.mark_fault()
    begun = time.thread_time()
    while time.thread_time() - begun < 0.02:
        pass
