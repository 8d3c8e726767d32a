"""Stragglers and slow links, from what ranks did within a window of time.

`parts` cuts the window; `straggling` is the statistical test. `late_ranks` and `slow_links` feed
it, `to_blame` follows lateness through groups to its origin, and `why_slow` finds the cause.
"""
