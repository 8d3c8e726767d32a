"""Writers of judged frames in formats of other programs, and of people."""
