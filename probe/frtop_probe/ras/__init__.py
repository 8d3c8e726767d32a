"""NCCL's RAS, asked once and only when a person wants it: it has crashed jobs that were asked.

Written from the public description of its protocol. Nothing here has met a real NCCL yet.
"""
