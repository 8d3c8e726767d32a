"""What frtop costs and how fast it is: `make bench`. Reports, not tests."""
