"""Stragglers and slow links, out of what ranks did within a window of time.

`parts` cuts the window, `straggling` is the test, pure arithmetic. `late_ranks` and `slow_links`
feed it, `to_blame` follows lateness through groups to where it begins, `why_slow` says why.
"""
