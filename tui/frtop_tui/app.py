"""The Textual application: wires source and screens."""
