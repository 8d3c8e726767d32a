"""What is here: the GPU, torch, NCCL, the rights to look, and the functions that frtop needs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from gpu_kit import facts, needs
from gpu_kit.checks.context import Context
from gpu_kit.facts import Fact
from gpu_kit.findings import Finding

QUERY: Final = "name,driver_version,memory.total,mig.mode.current,compute_mode,power.limit"
DOCTOR_S: Final = 25
FUNCTIONS: Final = (
    "_dump_nccl_trace_json",
    "_dump_nccl_trace",
    "_dump_fr_trace_json",
    "_dump_fr_trace_file",
)
METHODS: Final = ("name", "uid", "get_error", "_get_sequence_number_for_group")


def run(context: Context) -> None:
    facts.say("machine", python=platform.python_version(), kernel=platform.release(),
              cores=os.cpu_count(), yama=_read("/proc/sys/kernel/yama/ptrace_scope"),
              root=os.geteuid() == 0, shm_mb=_shm_mb())  # fmt: skip
    facts.say("gpu", text=_output(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"]))
    _say_torch()
    if context.left_s > DOCTOR_S:
        _say_doctor()


def _say_torch() -> None:
    import torch  # noqa: PLC0415
    from torch._C import _distributed_c10d as c10d  # noqa: PLC0415

    functions: Any = c10d
    there = {name: (getattr(functions, name).__doc__ or "").split("\n")[0]
             for name in FUNCTIONS if hasattr(functions, name)}  # fmt: skip
    kinds = [name for name in ("ProcessGroupNCCL", "ProcessGroupNCCL2") if hasattr(functions, name)]
    facts.say(
        "torch", version=str(torch.__version__), cuda=torch.version.cuda or "",
        nccl=_nccl(torch), functions=there,
        backends={kind: [name for name in METHODS if hasattr(getattr(functions, kind), name)]
                  for kind in kinds},
        says=_call(functions),
        gpus=torch.cuda.device_count() if torch.cuda.is_available() else 0,
    )  # fmt: skip


def _nccl(torch: Any) -> str:
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError):
        return ""


def _call(functions: Any) -> dict[str, Any]:
    """Calls each JSON dump before there is any group, which must be harmless."""
    found: dict[str, Any] = {}
    for name, more in (("_dump_nccl_trace_json", {}), ("_dump_fr_trace_json", {}),
                       ("_dump_fr_trace_json", {"backend": "nccl2"})):  # fmt: skip
        call = name + (f" {more}" if more else "")
        try:
            found[call] = sorted(json.loads(getattr(functions, name)(False, True, **more)))
        except Exception as error:  # noqa: BLE001 - an older torch lacks some
            found[call] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
    return found


def _say_doctor() -> None:
    command = needs.frtop("doctor", "--json", "--python", sys.executable)
    text = _output(command, DOCTOR_S)
    facts.say("doctor", text=text[:6000])


def _output(command: Sequence[str], seconds: float = 10) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no answer: {error}"
    return done.stdout.strip() or done.stderr.strip()[-300:]


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _shm_mb() -> int:
    found = os.statvfs("/dev/shm")  # noqa: S108 - its size only
    return found.f_bavail * found.f_frsize >> 20


# -- pure from here on


def judge(found: list[Fact], _arguments: Sequence[str] = ()) -> list[Finding]:
    """Turns facts into findings."""
    findings = []
    machine, gpu = _first(found, "machine"), _first(found, "gpu")
    torch, doctor = _first(found, "torch"), _first(found, "doctor")
    if machine:
        text = (
            f"{gpu.get('text', 'GPU not asked')}; kernel {machine['kernel']}, "
            f"Python {machine['python']}, {machine['cores']} cores; torch "
            f"{torch.get('version', '?')}, CUDA {torch.get('cuda') or 'none'}, "
            f"NCCL {torch.get('nccl') or 'none'}"
        )
        figures = {**machine, "doctor": doctor.get("text", "")}
        findings.append(Finding("machine", "figure", text, figures))
    if torch:
        findings.append(_functions(torch))
    return findings


def _functions(torch: Fact) -> Finding:
    there, backends = torch["functions"], torch["backends"]
    stock = backends.get("ProcessGroupNCCL")
    lacking = []
    if stock is None:
        lacking.append("NCCL itself (a build without CUDA)")
    else:
        lacking += [name for name in METHODS if name not in stock]
    if "_dump_nccl_trace_json" not in there:
        lacking.append("_dump_nccl_trace_json")
    by_name = "backend" in there.get("_dump_fr_trace_json", "")
    if "ProcessGroupNCCL2" in backends and not by_name:
        lacking.append("_dump_fr_trace_json(backend=), which nccl2 needs")
    text = f"there: {', '.join(there) or 'none'}; nccl2: {'yes' if len(backends) > 1 else 'no'}"
    if lacking:
        text = f"lacking: {', '.join(lacking)}; {text}"
    return Finding("functions", "otherwise" if lacking else "expected", text, dict(torch))


def _first(found: list[Fact], kind: str) -> Fact:
    return next(iter(facts.of(found, kind)), {})
