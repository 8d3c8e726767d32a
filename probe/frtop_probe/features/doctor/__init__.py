"""What would be seen of a job here, and which change opens what is closed: `frtop doctor`.

    facts            what is known of this host and of the ranks; plain values
    tier             what is said of it: tiers, what is in their way, changes
    process_rights   reads who a process is and what it may do
    guarded          calls what may hang or be killed, in a child
    trials           tries calls and tools on a process of our own
    host_reader, rank_reader, torch_files    read facts
    tracing, tools, history, service, places    pure: facts in, findings out
    examination      pure: all tiers in order

Standard library only: the checks also run on hosts where nothing of ours is installed.
"""
