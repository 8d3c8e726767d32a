"""`frtop doctor`: what frtop can see of a job here, and which change would show more.

    facts            what is known about this host and its ranks; plain values
    tier             what doctor says about it: tiers, obstacles, changes
    trials           tries calls and tools on a process that doctor starts
    host_reader, rank_reader, search, torch_files    read facts
    reading, stack_tools, history, devices, service    pure: facts in, findings out
    examination      pure: all tiers in order

Why the kernel refuses to trace a process is in `proc/ptrace_refusal.py`. Standard library only: the
checks also run on hosts without an installed frtop.
"""
