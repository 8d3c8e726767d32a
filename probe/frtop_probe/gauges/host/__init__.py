"""Gauges of a host from its kernel: one source per file, all read by one child (`__main__`).

A source yields subjects with figures. A call that may never return, for instance into a file system
or a driver, runs in a thread of the child that can be left behind (`hanging`), so that the other
sources go on.
"""
