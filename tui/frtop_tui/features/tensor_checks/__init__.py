"""Values in tensors, compared across ranks, and what ranks record.

`frtop numbers` and `frtop recorder` are one feature: both send a rank the same order
(`ChangeRecording`), through one follower, and share the screen `:record`.
"""
