"""The output that a job left: what its lines say about ranks, and a verdict from that."""
