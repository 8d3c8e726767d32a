"""Gauges of a host from its kernel: one source per file; one child (`__main__`) reads them all.

A source yields subjects with figures. A call that may never return, for instance into a file system
or a driver, runs in a thread of its own (`hanging`): the child leaves it behind, and the other
sources go on.
"""
