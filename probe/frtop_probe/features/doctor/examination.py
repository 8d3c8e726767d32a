"""All tiers in order: what `frtop doctor` concludes from the facts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from frtop_probe.features.doctor.devices import devices, gauges
from frtop_probe.features.doctor.facts import HostFacts, SearchFacts, ServiceFacts
from frtop_probe.features.doctor.history import dumps, history
from frtop_probe.features.doctor.reading import c10d, processes
from frtop_probe.features.doctor.service import agent, archive, key, ports, recorder
from frtop_probe.features.doctor.stack_tools import native_stacks, python_stacks
from frtop_probe.features.doctor.tier import Tier, exit_status


@dataclass(frozen=True, slots=True)
class Examination:
    """What doctor found on one host.

    Attributes:
        tiers: in the order of docs/unprepared.md, then the needs of frtop's own parts.
        service: None where frtop's own parts do not matter, as through a pipe.
    """

    host: HostFacts
    search: SearchFacts
    service: ServiceFacts | None
    tiers: tuple[Tier, ...]

    @property
    def exit_status(self) -> int:
        """0; 1 if a closed tier costs evidence."""
        return exit_status(self.tiers)


def examine(
    host: HostFacts, search: SearchFacts, service: ServiceFacts | None = None
) -> Examination:
    """Turns facts into tiers."""
    tiers = [
        processes(host, search),
        python_stacks(host, search),
        c10d(host, search),
        history(host, search),
        native_stacks(host, search),
        dumps(host, search),
        devices(host, search),
        recorder(host, search),
    ]
    if (tier := gauges(host)) is not None:
        tiers.append(tier)
    if service is not None:
        tiers += [key(service), agent(service), ports(service)]
    return Examination(host, search, service, (*tiers, archive(host)))
