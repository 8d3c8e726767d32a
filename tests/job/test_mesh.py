"""The mesh of a job, found from the members of its groups."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import prod

import pytest

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.job.mesh import Mesh, NoMesh, find_mesh
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import GroupKey

Ranks = tuple[int, ...]


def group(number: int, members: Iterable[int], description: str) -> GroupView:
    ranks = tuple(sorted(members))
    return GroupView(GroupKey(str(number), fold(ranks)), description, "nccl", ranks, 1, None)


def lines(order: Sequence[int], shape: Sequence[int], axes: Sequence[int]) -> list[Ranks]:
    """The groups that DeviceMesh makes of `axes`: the ranks that differ only on them."""
    places: dict[Ranks, list[int]] = {}
    for index, rank in enumerate(order):
        rest, at = index, []
        for size in reversed(shape):
            rest, place = divmod(rest, size)
            at.append(place)
        at.reverse()
        key = tuple(place for axis, place in enumerate(at) if axis not in axes)
        places.setdefault(key, []).append(rank)
    return [tuple(ranks) for ranks in places.values()]


def job(
    shape: Mapping[str, int],
    *,
    flattened: Mapping[str, Sequence[str]] | None = None,
    order: Sequence[int] | None = None,
    describe: str = "mesh_{}",
) -> list[GroupView]:
    """All groups of a job with a device mesh, the world's first."""
    names, sizes = list(shape), list(shape.values())
    ranks = order if order is not None else range(prod(sizes))
    axes = {name: [n] for n, name in enumerate(names)}
    axes |= {name: [names.index(one) for one in of] for name, of in (flattened or {}).items()}
    made = [(describe.format(name), one) for name, at in axes.items()
            for one in lines(ranks, sizes, at)]  # fmt: skip
    world = group(0, ranks, "default_pg")
    return [world, *(group(n, one, text) for n, (text, one) in enumerate(made, 1))]


def mesh_of(groups: Iterable[GroupView]) -> Mesh:
    found = find_mesh(groups)
    assert isinstance(found, Mesh), found
    return found


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ({"dp": 8, "tp": 4}, "dp 8 x tp 4"),
        ({"pp": 2, "dp": 4, "tp": 8}, "pp 2 x dp 4 x tp 8"),
        ({"dp_replicate": 2, "dp_shard": 4}, "dp_replicate 2 x dp_shard 4"),
        ({"pp": 2, "dp_replicate": 2, "dp_shard": 2, "tp": 2},
         "pp 2 x dp_replicate 2 x dp_shard 2 x tp 2"),
        ({"dp": 8, "tp": 1, "pp": 2}, "dp 8 x pp 2"),  # an axis of one rank cannot be seen
    ],
)  # fmt: skip
def test_the_axes_of_a_device_mesh_are_found_in_its_order(shape: dict[str, int], text: str) -> None:
    assert mesh_of(job(shape)).shape == text


def test_flattened_axes_are_said_in_terms_of_the_others() -> None:
    found = mesh_of(job({"dp_shard": 4, "cp": 2, "tp": 2}, flattened={"dp_cp": ["dp_shard", "cp"]}))
    assert found.shape == "dp_shard 4 x cp 2 x tp 2"
    assert found.others == (("dp_cp", "dp_shard x cp"),)


def test_experts_that_share_out_an_axis_are_said_to_be_within_it() -> None:
    dense = job({"dp": 8, "tp": 2})
    experts = [group(100 + n, range(base, base + 8, 2), f"ep:{n}")
               for n, base in enumerate((0, 1, 8, 9))]  # fmt: skip
    found = mesh_of([*dense, *experts])
    assert found.shape == "dp 8 x tp 2"
    assert found.others == (("ep", "within dp"),)


def test_groups_of_megatron_with_its_embedding_groups() -> None:
    groups = job({"pp": 4, "dp": 2, "tp": 2}, describe="{}_GROUP")
    edges = [group(200 + n, (n, n + 12), "EMBEDDING_GROUP") for n in range(3)]  # not of all ranks
    found = mesh_of([*groups, *edges])
    assert found.shape == "pp 4 x dp 2 x tp 2"
    assert found.others == ()


def test_groups_without_a_description_are_told_apart_by_their_members() -> None:
    assert mesh_of(job({"a": 4, "b": 4}, describe="undefined")).shape == "of 4 4 x of 4 4"


def test_ranks_in_any_order_form_a_mesh() -> None:
    order = list(range(24))
    random.Random(7).shuffle(order)
    found = mesh_of(job({"pp": 2, "dp": 4, "tp": 3}, order=order))
    assert sorted(one.size for one in found.dimensions) == [2, 3, 4]
    assert len({tuple(d.coordinates[r] for d in found.dimensions) for r in range(24)}) == 24


def test_a_group_knows_its_axis_and_its_place_on_the_others() -> None:
    groups = job({"pp": 2, "dp": 4, "tp": 8})
    found = mesh_of(groups)
    tp = next(one for one in groups if one.members == tuple(range(40, 48)))
    assert found.axes[tp.key.name, tp.key.ranks, 0] == "tp"
    assert found.place(tp.members) == "pp 1, dp 1"


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ([], "no groups known"),
        ([group(0, range(8), "default_pg")], "every group has either all ranks or just one"),
        (job({"dp": 4, "tp": 4})[:-1], "do not combine into 16 ranks"),  # one never reported
        ([group(0, range(8), "w"), group(1, range(4), "a"), group(2, (4, 5), "a")],
         "no set of groups contains each rank exactly once: groups a hold 4 of 8"),
    ],
)  # fmt: skip
def test_where_there_is_no_mesh_it_says_why(groups: list[GroupView], reason: str) -> None:
    found = find_mesh(groups)
    assert isinstance(found, NoMesh)
    assert reason in found.reason


def test_three_sets_that_meet_in_pairs_only_are_no_mesh() -> None:
    """Sizes multiply to the world, and still a combination names two ranks."""
    pairs = ([(0, 1), (2, 3)], [(0, 2), (1, 3)], [(0, 3), (1, 2)])
    groups = [
        group(n, (a + base, b + base), f"axis{n}:{base}")
        for n, axis in enumerate(pairs)
        for base in (0, 4)
        for a, b in axis
    ]
    assert isinstance(find_mesh([group(9, chain(range(8)), "w"), *groups]), NoMesh)
