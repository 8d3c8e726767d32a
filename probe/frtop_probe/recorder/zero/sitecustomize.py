"""Prepares every Python that starts with this folder first on PYTHONPATH.

It costs 0.5 ms and imports nothing. It waits until the program imports `torch.distributed`, makes
`import frtop_probe` work without adding to the program's path, and runs the `sitecustomize` that it
hides.
"""

import os
import sys
from _frozen_importlib import module_from_spec  # parts of importlib that are loaded already
from _frozen_importlib_external import PathFinder, spec_from_file_location

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - no pathlib yet
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))  # noqa: PTH120


class _Package:
    """Finds only `frtop_probe`."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # noqa: ARG004
        if name != "frtop_probe":
            return None
        init = os.path.join(_PACKAGE, "__init__.py")  # noqa: PTH118
        return spec_from_file_location(name, init, submodule_search_locations=[_PACKAGE])


def _prepare():
    # Every Python of the job runs this, even tools with an older version.
    if os.environ.get("FRTOP_OFF") == "1" or sys.version_info < (3, 10):
        return
    sys.meta_path.append(_Package)  # last, so an installed package is found first
    file = os.path.join(_PACKAGE, "recorder", "process", "import_hook.py")  # noqa: PTH118
    spec = spec_from_file_location("_frtop_import_hook", file)
    import_hook = module_from_spec(spec)
    spec.loader.exec_module(import_hook)
    import_hook.when_imported("torch.distributed.distributed_c10d", _torch_imported)


def _torch_imported(c10d):
    try:
        from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

        lifecycle.prepare(c10d)
    except Exception as error:  # noqa: BLE001 - our failures must not stop the program
        sys.stderr.write(f"frtop: recorder off: {error}. Training goes on\n")


def _chain():
    """Runs the `sitecustomize` that this file hides, under its own name."""
    others = [p for p in sys.path if os.path.abspath(p or ".") != _HERE]  # noqa: PTH100
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_prepare()
_chain()
