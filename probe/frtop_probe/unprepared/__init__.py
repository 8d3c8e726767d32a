"""Reads the state of torch.distributed in the memory of a process without a recorder.

It only reads: no injection, no stop, no signal, no ptrace attach. It never guesses: data that
cannot be validated is "not readable" with a named reason. Standard library only.
"""
