"""Gauges of a host as its kernel shows them: a source per file, all read by one child (`__main__`).

A source gives subjects, which are things with figures. What may never return, as a question to a
file system or a file of a driver, is asked by a thread of the child that is then left (`hanging`),
so that the other sources go on.
"""
