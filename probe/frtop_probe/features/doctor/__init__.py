"""What would be seen of a job here, and which change opens what is closed: `frtop doctor`.

    facts            what is known of this host and of the ranks; plain values
    tier             what is said of it: tiers, what is in their way, changes
    trials           tries calls and tools on a process of our own
    host_reader, rank_reader, search, torch_files    read facts
    reading, stack_tools, history, devices, service    pure: facts in, findings out
    examination      pure: all tiers in order

Why the kernel refuses to trace a process is in `proc/ptrace_refusal.py`. Standard library only: the
checks also run on hosts where nothing of ours is installed.
"""
