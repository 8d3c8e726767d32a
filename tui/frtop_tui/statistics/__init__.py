"""What ranks did within a window of time: answers of agents, and files, merged over the job."""
