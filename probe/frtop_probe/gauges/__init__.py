"""Gauges that device drivers report; so far, of NVIDIA GPUs.

A call into a driver may never return, so a child (`__main__`) makes all calls.
"""
