"""Operators, algorithms and transports by name."""
from __future__ import annotations

import ctypes
import enum
from typing import Any, Dict, Union

from ._library import check, lib


class ReduceOp(enum.IntEnum):
    """Reduction operators. A call takes one of these or its name in lower case: op="sum"."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


ANY_RANK = -1
_known: Dict[Any, int] = {}


def _number(find: str, name: str) -> int:
    key = (find, name)
    if key not in _known:
        number = ctypes.c_int32()
        check(getattr(lib, find)(name.encode(), ctypes.byref(number)))
        _known[key] = number.value
    return _known[key]


_SHORT = {"band": "bit_and", "bor": "bit_or", "bxor": "bit_xor", "prod": "product"}


def op_number(op: Union[ReduceOp, str]) -> int:
    if isinstance(op, ReduceOp):
        return int(op)
    if isinstance(op, str):
        return _number("gradsync_op_named", _SHORT.get(op.lower(), op.lower()))
    raise TypeError(f"op is {op!r}, expected a gradsync.ReduceOp or the name of one")


def algorithm_number(name: str) -> int:
    return _number("gradsync_algorithm_named", name)


def transport_number(name: str) -> int:
    return _number("gradsync_transport_named", name)
