"""Watches jobs unattended: captures a hang before its timeout, and notifies people."""
