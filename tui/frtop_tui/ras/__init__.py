"""What NCCL's RAS tells of a job, and the risk of asking it. Pure; no evidence of a verdict yet."""
