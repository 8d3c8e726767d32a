"""The process per host that reads rings and /proc, and answers operators.

Two sockets, both CURVE servers that admit listed keys only (`door`):

* PUB, `Announcement.pub`: one `Update` per tick. Subscribe to `wire.PROTOCOL`.
* ROUTER, `Announcement.ask`: a DEALER sends an `Ask`, and gets an `Answer` that carries the
  question's `id`.

Subscribe first, then ask for the state; apply the updates numbered above it. A gap, or
another `instance`, means ask again.
"""
