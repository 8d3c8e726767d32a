"""The process per host that reads rings and /proc, and answers operators.

Two sockets, both CURVE servers that admit only listed keys (`sockets`):

* PUB, `Announcement.pub`: one `Update` per tick. Subscribe to `wire.PROTOCOL`.
* ROUTER, `Announcement.ask`: a DEALER sends a `Request`, and gets a `Response` with the same
  `id`.

To follow, subscribe first, then request the state, then apply the updates numbered above it. After
a gap in the numbers, or a new `instance`, request the state again.
"""
