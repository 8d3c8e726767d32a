"""The command line: parse and dispatch. Textual is imported only to draw."""
