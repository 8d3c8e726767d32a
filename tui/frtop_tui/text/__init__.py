"""A judged frame as text for people, as JSON for programs, and as an exit status."""
