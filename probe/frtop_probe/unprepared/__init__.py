"""Reads the state of torch.distributed in the memory of a process without a recorder.

It only reads: no injection, no stop, no signal, no ptrace attach. What cannot be validated is "not
readable" with a named reason, never guessed. Standard library only.
"""
