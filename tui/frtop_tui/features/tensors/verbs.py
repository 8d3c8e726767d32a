"""The verb `tensors`."""

from __future__ import annotations

from typing import Final

from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import number, rank
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command


def _tensors(verbs: Verbs[Parser]) -> None:
    tensors = verbs.add_parser(
        "tensors", help="show statistics of the tensors in a rank's pending ops"
    )
    add_connection(tensors, pid=False)
    tensors.add_argument("--rank", type=rank, required=True, metavar="N", help="global rank")
    tensors.add_argument("--op", type=number, default=0, metavar="OP",
                         help="only this pending op, by its number or as in the column `op` "
                              "(default: all)")  # fmt: skip
    tensors.add_argument("--members", action="store_true",
                         help="compare all members of the op's group; each works for up to 1.2 s "
                              "(default op: the one that the rank waits for)")  # fmt: skip
    tensors.add_argument("--save", metavar="FILE",
                         help="write the tensors of one op to a safetensors file")  # fmt: skip
    tensors.add_argument("--json", action="store_true", help="print a JSON document")
    tensors.set_defaults(run=command("features.tensors.command"))


VERBS: Final = (Verb(30, _tensors),)
