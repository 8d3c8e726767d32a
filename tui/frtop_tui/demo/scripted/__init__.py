"""Thousands of scripted ranks: real agents' messages over real sockets, about made-up ranks.

script    what happens when: steps, ops, faults, as functions of the time
ranks     the same as an agent reports it: updates, snapshots, histories
counts    the same as statistics
gauges    the figures of their hosts
service   the agents' sockets, many in one process (`__main__`)
job       starts and ends these processes
"""
