"""The recorder inside the rank. Standard library and torch only; never raises, never blocks."""
