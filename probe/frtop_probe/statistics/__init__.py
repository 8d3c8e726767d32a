"""Computes what ranks did within a window of time, from their ops. Pure; for agents and files."""
