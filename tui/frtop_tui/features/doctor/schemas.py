"""The types of what `frtop doctor --json` prints."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import UNSET, Struct, UnsetType

from frtop_probe.features.doctor.facts import HostFacts, SearchFacts, ServiceFacts
from frtop_probe.features.doctor.tier import Tier


class DoctorDocument(Struct, frozen=True):
    """`frtop doctor --json`: of this host."""

    schema: Literal["frtop-doctor-1"]
    exit_status: int
    tiers: tuple[Tier, ...]
    host: HostFacts
    search: SearchFacts
    service: ServiceFacts | None


class HostTrouble(Struct, frozen=True):
    """Why a host was not examined."""

    text: str
    next: str


class HostDoctorFields(Struct, frozen=True):
    """One host; one that was not examined has only `error` and `same_as`."""

    error: HostTrouble | None
    same_as: str | None  # another name of the same host
    schema: Literal["frtop-doctor-1"] | UnsetType = UNSET
    exit_status: int | UnsetType = UNSET
    tiers: tuple[Tier, ...] | UnsetType = UNSET
    host: HostFacts | UnsetType = UNSET
    search: SearchFacts | UnsetType = UNSET
    service: ServiceFacts | UnsetType | None = UNSET


class DoctorHostsDocument(Struct, frozen=True):
    """`frtop doctor --ssh HOSTS --json`."""

    schema: Literal["frtop-doctor-hosts-1"]
    exit_status: int
    groups: tuple[tuple[str, ...], ...]  # hosts with the same answer
    hosts: dict[str, HostDoctorFields]


TYPES: Final = (DoctorDocument, DoctorHostsDocument)
