"""Screens: each draws frames and turns keys into messages to the app."""
