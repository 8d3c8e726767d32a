"""Prepares every Python that is started with this folder first on PYTHONPATH.

Costs half a millisecond and imports nothing: it waits until the program itself imports
`torch.distributed`, lets `import frtop_probe` be found without putting anything else on
the program's path, and hands on to the `sitecustomize` that would have run otherwise.
"""

import os
import sys
from _frozen_importlib import module_from_spec  # what importlib is made of, loaded already
from _frozen_importlib_external import PathFinder, spec_from_file_location

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - no pathlib yet
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))  # noqa: PTH120


class _Package:
    """Finds `frtop_probe`, and only that."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # noqa: ARG004
        if name != "frtop_probe":
            return None
        init = os.path.join(_PACKAGE, "__init__.py")  # noqa: PTH118
        return spec_from_file_location(name, init, submodule_search_locations=[_PACKAGE])


def _prepare():
    # Every Python of the job comes through here, also tools with an older one.
    if os.environ.get("FRTOP_OFF") == "1" or sys.version_info < (3, 10):
        return
    sys.meta_path.append(_Package)  # behind the others: an installed one is found first
    file = os.path.join(_PACKAGE, "recorder", "import_hook.py")  # noqa: PTH118
    spec = spec_from_file_location("_frtop_import_hook", file)
    import_hook = module_from_spec(spec)
    spec.loader.exec_module(import_hook)
    import_hook.when_imported("torch.distributed.distributed_c10d", _arrived)


def _arrived(c10d):
    try:
        from frtop_probe.recorder.lifecycle import lifecycle  # noqa: PLC0415

        lifecycle.prepare(c10d)
    except Exception as error:  # noqa: BLE001 - the boundary: training goes on
        sys.stderr.write(f"frtop: recorder off: {error}. Training goes on\n")


def _chain():
    """Runs the `sitecustomize` that this one hides, under its name."""
    others = [p for p in sys.path if os.path.abspath(p or ".") != _HERE]  # noqa: PTH100
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_prepare()
_chain()
