"""All targets: importing this fills `fuzz.target.TARGETS`."""

from fuzz.targets import files, pipes, process, ring, wire_messages, words

ALL = (files, pipes, process, ring, wire_messages, words)
