"""Finds the ranks of running distributed PyTorch jobs from /proc, prepared or not.

`facts` says what is known of one process, `proc_reader` reads it, `scanner` keeps the table
up to date. `claims`, `command_line`, `roles` and `jobs` are pure: table in, jobs out. Standard
library only.
"""
