"""What screens are made of; each draws one part of a frame."""
