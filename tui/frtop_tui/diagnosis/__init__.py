"""Who is waited for, why, and whether it is hung. Pure: frames in, verdicts out."""
