"""The ring: the shared-memory file in which a rank records its recent history and current state.

`layout` defines the file, `reader` reads it from another process, even after the rank has died.
Only a rank writes: `recorder/own_ring.py` creates the file, `recorder/ops/kernel.py` writes ops.
Standard library only, because the recorder imports this package inside the job.
"""
