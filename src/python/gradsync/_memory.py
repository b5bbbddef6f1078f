"""Registered memory as NumPy arrays."""
from __future__ import annotations

import ctypes
from typing import Any, Dict, Sequence, Union

from ._errors import InvalidArgumentError, UnsupportedError
from ._library import check, lib


class Memory:
    """The owner that an array of registered memory refers to: freed with the last array on it."""

    def __init__(self, handle: int, interface: Dict[str, Any]) -> None:
        self._handle = handle
        self.__array_interface__ = interface

    def __del__(self) -> None:
        lib.gradsync_memory_free(self._handle)


def allocate(communicator: int, shape: Union[int, Sequence[int]], dtype: Any) -> Any:
    try:
        import numpy
    except ImportError:
        raise UnsupportedError("allocate: gives NumPy arrays, and NumPy is not installed") from None
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(length < 0 for length in shape):
        raise InvalidArgumentError(f"allocate: the shape is {shape}, expected no length below 0")
    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise UnsupportedError(f"allocate: {kind} holds references, which other processes cannot read")
    count = 1
    for length in shape:
        count *= length
    if count == 0:
        return numpy.zeros(shape, kind)
    memory, data = ctypes.c_void_p(), ctypes.c_void_p()
    check(lib.gradsync_allocate(communicator, count * kind.itemsize, ctypes.byref(memory), ctypes.byref(data)))
    interface = {"version": 3, "shape": (count * kind.itemsize,), "typestr": "|u1", "data": (data.value, False)}
    return numpy.asarray(Memory(memory.value or 0, interface)).view(kind).reshape(shape)
