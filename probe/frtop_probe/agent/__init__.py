"""The process per host that reads rings and /proc, and answers operators.

Two sockets, both CURVE servers that admit listed keys only (`door`):

* PUB, `Announcement.pub`: one message per tick, `[PROTOCOL, host, Update]`. Subscribe to
  `wire.PROTOCOL`.
* ROUTER, `Announcement.ask`: a DEALER sends `[PROTOCOL, Ask]`, and gets
  `[PROTOCOL, Answer]`; the answer carries the question's `id`.

Subscribe first, then ask for the state; apply the updates numbered above it. A gap, or
another `instance`, means ask again.
"""
