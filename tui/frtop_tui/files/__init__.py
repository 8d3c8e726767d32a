"""Files about jobs: captures, black boxes, Flight Recorder dumps and stack dumps."""
