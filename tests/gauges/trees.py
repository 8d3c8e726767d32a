"""Folders in the form of /proc and /sys for what no machine here has, by the kernel's own pages."""

from __future__ import annotations

from pathlib import Path


def write(root: Path, files: dict[str, object]) -> Path:
    """Writes files below `root`; a value is all of a file, with a newline behind."""
    for name, value in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return root


def infiniband_port(
    received: int, sent: int, *, state: str = "4: ACTIVE", errors: int = 0, downed: int = 0
) -> dict[str, object]:
    """Port 1 of mlx5_0: files of Documentation/ABI/stable/sysfs-class-infiniband.

    Args:
        received: bytes; the counters count words of four.
        sent: the same.
        state: line of the file of that name.
        errors: symbol errors.
        downed: how often the link went down.
    """
    port = "class/infiniband/mlx5_0/ports/1"
    return {
        f"{port}/state": state,
        f"{port}/phys_state": "5: LinkUp",
        f"{port}/rate": "400 Gb/sec (4X NDR)",
        f"{port}/link_layer": "InfiniBand",
        f"{port}/counters/port_rcv_data": received // 4,
        f"{port}/counters/port_xmit_data": sent // 4,
        f"{port}/counters/symbol_error": errors,
        f"{port}/counters/port_rcv_errors": 0,
        f"{port}/counters/link_downed": downed,
        f"{port}/counters/port_xmit_discards": 0,
        f"{port}/counters/port_xmit_wait": 0,
    }


def nic(name: str, received: int, sent: int, **more: object) -> dict[str, object]:
    """A network interface of 25 Gb/s."""
    folder = f"class/net/{name}"
    counters = {"rx_errors": 0, "tx_errors": 0, "rx_dropped": 0, "tx_dropped": 0}
    counters |= {"rx_bytes": received, "tx_bytes": sent}
    files: dict[str, object] = {f"{folder}/operstate": "up", f"{folder}/speed": 25_000}
    known = {**files, **{f"{folder}/statistics/{one}": n for one, n in counters.items()}}
    return {**known, **{f"{folder}/{one}": value for one, value in more.items()}}


def cgroup_v2(folder: str, **files: object) -> dict[str, object]:
    """A cgroup of version 2; the first `_` in the name of a file stands for `.`."""
    return {f"{folder}/{name.replace('_', '.', 1)}": value for name, value in files.items()}
