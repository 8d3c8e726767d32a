"""What ranks did, on one clock: the ops of many ranks as lanes in time, and side by side."""
