"""All ranks are done and leave; rank 1 does not return from `destroy_process_group`."""

import threading

import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("stuck", 1, says=("does not end", "destroy_process_group"), within_s=100)

lock = threading.Lock()


job = join()
job.train(60)
job.mark_fault()
if job.rank == 1:  # as NCCL's end, which waits for its peers
    dist.distributed_c10d._unregister_all_process_groups = lock.acquire
    lock.acquire()
dist.destroy_process_group()
