"""Widgets: each draws one part of a frame."""
