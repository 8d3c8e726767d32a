"""`frtop check`: whether a job does what a plan says, and a plan from a good run."""
