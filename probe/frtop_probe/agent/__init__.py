"""The process per host that reads rings and /proc, and answers operators."""
