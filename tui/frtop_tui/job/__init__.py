"""The job on the operator's side: its state, merged from updates, and frames of it.

Pure: no sockets, no Textual, no clock; `now` is always an argument.
"""
