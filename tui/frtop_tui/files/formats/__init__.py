"""Writers of judged frames in formats for other programs and for people."""
