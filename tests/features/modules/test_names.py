"""Names of modules: several models of one class, and parts of one model."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from frtop_probe.features.modules.in_rank.module_calls import add_root
from frtop_probe.features.modules.in_rank.module_names import ModuleNames, Name

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.torch


class Called:
    """Models as a program calls them, one after the other, and how they are named."""

    def __init__(self) -> None:
        self.roots: dict[int, weakref.ref[torch.nn.Module]] = {}
        self.names = ModuleNames(self.roots)

    def call(self, root: torch.nn.Module, path: str = "") -> Name | None:
        add_root(self.roots, root)
        return self.names.of(root.get_submodule(path))


@pytest.fixture
def called() -> Called:
    return Called()


@pytest.fixture
def net() -> Callable[..., torch.nn.Module]:
    from torch import nn  # noqa: PLC0415 - torch is not everywhere

    class Net(nn.Module):
        def __init__(self, *layers: int) -> None:
            super().__init__()
            self.layers = nn.ModuleDict({str(n): nn.Linear(2, 2) for n in layers})

    return Net


def test_models_of_one_class_are_numbered(
    called: Called, net: Callable[..., torch.nn.Module]
) -> None:
    first, second, third = net(0, 1), net(0, 1), net(1)
    assert called.call(first, "layers.1") == ("Net", "layers.1")
    assert called.call(second, "layers.1") == ("Net #2", "layers.1")
    assert called.call(third, "layers.1") == ("Net #3", "layers.1")
    assert called.names.of(first) == ("Net", "")
    assert called.names.of_parameter(second.get_parameter("layers.0.bias")) == (
        "Net #2", "layers.0",
    )  # fmt: skip
    # A label of FSDP2 has the path alone.
    assert called.names.root_with("layers.1") == "Net #?"


def test_stages_of_a_pipeline_are_parts_of_one_model(
    called: Called, net: Callable[..., torch.nn.Module]
) -> None:
    stages = [net(0, 1), net(2, 3)]
    assert [called.call(one) for one in stages] == [("Net", ""), ("Net", "")]
    assert called.names.root_with("layers.2") == "Net"


def test_what_is_called_with_and_without_its_wrapper_is_one_model(
    called: Called, net: Callable[..., torch.nn.Module]
) -> None:
    import torch  # noqa: PLC0415

    model = net(0)
    wrapped: Any = torch.nn.DataParallel(model)
    part = model.get_submodule("layers.0")
    assert called.call(wrapped) == called.call(model) == ("Net", "")
    assert called.call(part) == ("Net", "layers.0")
    assert called.call(torch.nn.Linear(2, 2)) == ("Linear", "")


def test_a_model_that_is_gone_leaves_its_number(
    called: Called, net: Callable[..., torch.nn.Module]
) -> None:
    first = net(0)
    called.call(first)
    for _ in range(3):
        second = net(0)
        assert called.call(second) == ("Net #2", "")
        del second
        gc.collect()


def test_names_that_were_looked_up_again_are_no_others(
    called: Called, net: Callable[..., torch.nn.Module]
) -> None:
    model = net(0)
    called.call(model)
    changes = called.names.changes
    assert called.names.of(net(0)) is None  # it looks at all roots again
    assert called.names.changes == changes
