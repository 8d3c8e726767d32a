"""One module per screen; each shows a frame and sends keys up."""
