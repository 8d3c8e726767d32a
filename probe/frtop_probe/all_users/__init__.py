"""The agent that root starts on purpose: all jobs of a host, for those whom root's list admits.

    admitted        the list: which key may see, or act on, the ranks of which users
    audit           one line for each request that touches a rank
    become_user     a script that gives up root and becomes a program
    framing         messages between this agent and its processes
    user_agent      the process that reads the ranks of one user, with that user's rights
    user_process    one such process, as this agent sees it
    presence        which users have processes that may be ranks
    subscription    the updates of one connection: only ranks that its key may see
    host_admission  who may connect: the list, as of now
    host_figures    what the host does, of which every user can read the same
    requests        from an operator's request to the processes that answer it
    user_processes  all of them: started while somebody looks, then ended
    service         sockets on one side, processes on the other, subscriptions between them
    lifecycle       starts and ends it

This agent reads no rank itself. It has the sockets, the host's key, the list and the audit; a
process per user does the reading, after it has given up root for good.
"""
