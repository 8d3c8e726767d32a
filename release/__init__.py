"""Makes what people install: packages and `frtop.pyz`, `make dist`. Not part of frtop."""
