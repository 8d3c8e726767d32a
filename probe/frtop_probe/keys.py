"""CURVE keys: where they are, who may come in."""
