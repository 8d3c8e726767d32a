"""frtop's probe: the recorder that runs inside a rank, and the agent that reads it."""
