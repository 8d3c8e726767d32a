"""Flight Recorder dumps: what torch itself wrote of a job's last ops, one file per rank."""
