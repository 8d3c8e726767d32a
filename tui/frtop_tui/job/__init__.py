"""The job as the operator's side knows it: state from updates, and the frame of it.

Pure: no sockets, no Textual, no clock of its own; `now` is always an argument.
"""
