"""Watches jobs unattended: captures a hang before its timeout, and tells whom it concerns."""
