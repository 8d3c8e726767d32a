"""Watches jobs unattended: captures a hang before the op times out, and notifies people."""
