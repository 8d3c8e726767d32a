"""Flight Recorder dumps: what torch itself wrote about a job's last ops, one file per rank."""
