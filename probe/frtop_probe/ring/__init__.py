"""The shared-memory file in which a rank keeps its recent history and its present.

`layout` says where everything lies; `reader` reads it from another process, also after
the rank's death. The writer is part of the recorder, because only a rank writes.
Standard library only: the recorder imports this inside the job.
"""
