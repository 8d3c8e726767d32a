"""Positions of ranks in the grid."""

from __future__ import annotations

from frtop_tui.widgets.grid_layout import lay_out, natural_key, short_hosts


def test_hosts_lose_their_domain_only_while_names_differ() -> None:
    assert short_hosts(["a.x.org", "b.x.org"]) == {"a.x.org": "a", "b.x.org": "b"}
    assert short_hosts(["a.x.org", "a.y.org"]) == {"a.x.org": "a.x.org", "a.y.org": "a.y.org"}
    assert sorted(["n10", "n9"], key=natural_key) == ["n9", "n10"]


def test_every_rank_has_its_own_position_in_the_grid() -> None:
    for ranks_per_host, width in ((8, 78), (8, 58), (4, 20), (200, 78), (1, 10)):
        hosts = {f"node{h}": range(h * ranks_per_host, (h + 1) * ranks_per_host) for h in range(20)}
        layout = lay_out(hosts, width)
        assert len(set(layout.positions.values())) == 20 * ranks_per_host
        assert max(x for _, x in layout.positions.values()) < width
