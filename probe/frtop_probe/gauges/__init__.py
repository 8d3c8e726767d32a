"""Gauges of a host's devices, as their drivers show them: now those of NVIDIA GPUs.

A call of a driver may never return, so a child (`__main__`) makes them and `worker` asks it. Each
kind of device has a reader of its own; the child and what goes over its pipe are common to all.
"""
