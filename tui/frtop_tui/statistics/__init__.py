"""What ranks did within a window of time: agents' answers, and files, merged over the job."""
