"""The ring: the shared-memory file in which a rank records its recent history and current state.

`layout` defines the file, `reader` reads it from another process, also after the rank has
died. The writer is part of the recorder, because only a rank writes. Standard library only:
the recorder imports this package inside the job.
"""
