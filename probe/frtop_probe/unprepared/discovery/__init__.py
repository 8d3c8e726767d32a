"""Finds the ranks of running distributed PyTorch jobs from /proc, prepared or not.

`proc_reader` reads the `facts` of a process, `scanner` keeps those of all processes up to date.
`claims`, `command_line`, `roles` (which are ranks) and `jobs` (which are one job) are pure.
Standard library only.
"""
