"""The operator's side of frtop: sources, job state, diagnosis, screens, command line."""
