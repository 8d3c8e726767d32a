"""The verb `tensors`."""

from __future__ import annotations

from typing import Final

from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import number, one_rank
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command


def _tensors(verbs: Verbs[Parser]) -> None:
    tensors = verbs.add_parser(
        "tensors",
        help="show figures of the tensors in a rank's pending ops",
        description="Reads the tensors of a rank's pending ops, and prints their shapes, means,"
        " norms, and how many values are NaN, Inf or zero.",
    )
    tensors.add_argument(
        "--rank", type=one_rank, required=True, metavar="N", help="this rank, one only"
    )
    tensors.add_argument("--op", type=number, default=0, metavar="OP",
                         help="only this pending op, by its number or as in the column `op` "
                              "(default: all)")  # fmt: skip
    tensors.add_argument("--members", action="store_true",
                         help="compare all members of the op's group; each works for up to 1.2 s "
                              "(default op: the one that the rank waits for)")  # fmt: skip
    tensors.add_argument("-o", "--output", metavar="FILE",
                         help="write the tensors of one op to a safetensors file")  # fmt: skip
    tensors.add_argument("--json", action="store_true", help="print a JSON document")
    add_connection(tensors, without=("--pid",))
    tensors.set_defaults(run=command("features.tensors.command"))


VERBS: Final = (Verb(14, _tensors),)
