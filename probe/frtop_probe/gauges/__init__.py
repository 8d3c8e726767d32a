"""Gauges from drivers of devices: so far, NVIDIA GPUs.

A call into a driver may never return, so a child (`__main__`) makes all calls.
"""
