"""Ranks whose tensors look as if they were on a GPU, with a stand-in of its driver.

Only two things are no real ones: the driver's library, and that `device` and `is_cpu` of a tensor
say what they would say on a GPU. Its memory is the host's, and gloo communicates it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from recorder.interactive_rank import InteractiveRank

SOURCE = Path(__file__).with_name("driver_standin.c")
ON_DEVICE = """
class OnDevice(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: torch.device("cuda", getattr(self, "number", 0)))
    is_cpu = property(lambda self: False)

def on_device(tensor):
    return tensor.as_subclass(OnDevice)
"""
DRIVER = """
driver = ctypes.CDLL({library!r})
torch.cuda._initialized = True

def switch(name, value, kind=ctypes.c_int):
    kind.in_dll(driver, "standin_" + name).value = value

def block(name):
    (ctypes.c_char * 64).in_dll(driver, "standin_block").value = name.encode()

def seen(name, kind=ctypes.c_int):
    return kind.in_dll(driver, "standin_" + name).value
"""


def build(folder: Path) -> Path:
    """Compiles the stand-in; returns the library."""
    library = folder / "libcuda.so.1"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-O1", f"-Wl,-soname,{library.name}",
         "-o", str(library), str(SOURCE)],
        check=True,
    )  # fmt: skip
    return library


def give_driver(rank: InteractiveRank, library: Path) -> None:
    """Loads the stand-in, as torch loads the driver when CUDA is initialised."""
    rank.run(ON_DEVICE + DRIVER.format(library=str(library)))
