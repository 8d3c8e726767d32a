"""`frtop runs`: the runs of which a folder has records, and what to type to look at each."""
