"""Records modules in a rank: from its start with `FRTOP_MODULES=1`, or on an operator's request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from frtop_probe.features.modules.in_rank.issuers import (
    CURRENT,
    GIVEN_UP,
    SETTING,
    TOO_OLD,
    Issuers,
    install,
)
from frtop_probe.recorder.feature import RankFeature, RankSetting, switch_of

if TYPE_CHECKING:
    from frtop_probe.recorder.recorder import Recorder


class ModuleRecording(RankFeature):
    """Records for each op which module issues it, for one recorder."""

    def __init__(self, recorder: Recorder, torch: Any) -> None:
        self._recorder = recorder
        self._torch = torch
        self.issuers: Issuers | None = None
        """Set once an operator or the environment has switched modules on."""
        self.settings = {"modules": RankSetting(switch_of(self.switch), lambda: self.records)}

    @property
    def records(self) -> bool:
        """Whether ops are recorded with their issuers."""
        return self.issuers is not None and self.issuers.on and not self.issuers.given_up

    def attached(self) -> None:
        if os.environ.get(SETTING) == "1":
            self.switch(True)

    def switch(self, on: bool) -> str:
        """Starts or stops recording modules; returns why that cannot be done, or ""."""
        if not on:
            if self.issuers is not None:
                self.issuers.switch(on=False)
            return ""
        recorder = self._recorder
        if self.issuers is None:
            self.issuers = Issuers(recorder.ring, self._torch, recorder.steps, recorder.sites)
        if not install(self._torch, self.issuers, recorder.enabled):
            recorder.ring.write_note(TOO_OLD)
            return TOO_OLD
        if self.issuers.given_up:
            return GIVEN_UP
        self.issuers.switch(on=True)
        if not recorder.find_issuer:
            for feature in recorder.features:
                feature.modules_recorded(self.issuers)
            recorder.find_issuer.append(self.issuers.find)
        return ""

    def abandon_in_child(self) -> None:
        CURRENT.calls = CURRENT.issuers = None


attach: Final = ModuleRecording
