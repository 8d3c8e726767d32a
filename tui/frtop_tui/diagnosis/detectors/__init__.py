"""Detectors: graph and evidence in, findings out. None of them makes a sentence."""
