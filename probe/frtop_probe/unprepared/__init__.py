"""Reads what torch.distributed keeps in the memory of a process that does not know frtop.

Reading only: no injection, no stop, no signal, no ptrace attach. What cannot be validated is
"not readable" with a named reason, never guessed. Standard library only.
"""
