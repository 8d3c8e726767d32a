"""The kernels in C++: an accelerator. Without it, those in Python record the same.

`build` compiles them for a torch and a Python, `library` loads what was built, `install` puts it
in place.
"""
