"""Makes the logs of `made.tar.gz` again: real jobs, each with one fault in a rank that is known."""
