"""Memory of the caller's arrays: NumPy, the buffer protocol, DLPack.

`borrow` finds address, element type and shape of anything that has them, copies nothing, and keeps the owner alive.
What is not contiguous goes through a contiguous copy, in C order of its indices: an input is copied when the call
begins, an output when it is done.
"""
from __future__ import annotations

import ctypes
import sys
from typing import Any, List, NamedTuple, Optional, Tuple

from . import _dlpack
from ._errors import InvalidArgumentError, UnsupportedError

_NATIVE = "<" if sys.byteorder == "little" else ">"
DTYPES = ("f16", "bf16", "f32", "f64", "i8", "u8", "i32", "u32", "i64", "u64", "bool")
SIZES = (2, 2, 4, 8, 1, 1, 4, 4, 8, 8, 1)
_BY_KIND = {("f", 2): 0, ("f", 4): 2, ("f", 8): 3, ("i", 1): 4, ("u", 1): 5, ("i", 4): 6, ("u", 4): 7, ("i", 8): 8,
            ("u", 8): 9, ("b", 1): 10}
# Of NumPy, in this machine's byte order; bfloat16 comes from other packages and is known by its name.
_BY_NUMPY = {f"{_NATIVE if size > 1 else '|'}{kind}{size}": number for (kind, size), number in _BY_KIND.items()}
_KIND_BY_FORMAT = {**dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQNc", "u"), **dict.fromkeys("efd", "f"),
                   "?": "b"}


class Borrowed(NamedTuple):
    """Elements in memory; `strides` in bytes, None if they follow one another."""

    address: int
    elements: int
    dtype: int
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]]
    readonly: bool
    owner: Any


def _unsupported(what: str) -> UnsupportedError:
    return UnsupportedError(f"elements are {what}, supported are {', '.join(DTYPES)}; "
                            "what is only moved may be passed as a view of bytes")


def is_contiguous(shape: Tuple[int, ...], strides: Tuple[int, ...], itemsize: int) -> bool:
    expected = itemsize
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length == 0:
            return True
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def _count(shape: Tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def _from_numpy(array: Any) -> Borrowed:
    dtype = array.dtype
    number = _BY_NUMPY.get(dtype.str)
    if number is None and not dtype.isnative:
        raise UnsupportedError(f"elements are {dtype.str}, of the other byte order; expected those of this machine: "
                               f"array.astype(array.dtype.newbyteorder('='))")
    if number is None and dtype.name == "bfloat16":
        number = DTYPES.index("bf16")
    if number is None:
        raise _unsupported(dtype.name)
    flags = array.flags
    strides = None if flags.c_contiguous else array.strides
    return Borrowed(array.__array_interface__["data"][0], array.size, number, array.shape, strides,
                    not flags.writeable, array)


class _PyBuffer(ctypes.Structure):  # Py_buffer of CPython
    _fields_ = [
        ("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)), ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)), ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int], ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [ctypes.POINTER(_PyBuffer)], None
_STRIDES_AND_FORMAT = 0x10 | 0x08 | 0x04  # PyBUF_STRIDES | PyBUF_ND | PyBUF_FORMAT


class _Export:
    """A buffer that its owner may not move or resize while this lives."""

    def __init__(self, owner: Any) -> None:
        self.view = _PyBuffer()
        _get_buffer(owner, ctypes.byref(self.view), _STRIDES_AND_FORMAT)

    def __del__(self) -> None:
        _release_buffer(ctypes.byref(self.view))  # does nothing where there was no export


def _from_export(owner: Any) -> Borrowed:
    export = _Export(owner)
    view = export.view
    text = view.format.decode() if view.format else "B"
    order, letter = (text[0], text[1:]) if text[0] in "@=<>!" else ("@", text)
    if order in "<>!" and ("<" if order == "<" else ">") != _NATIVE and view.itemsize > 1:
        raise UnsupportedError(f"elements are '{text}', of the other byte order; expected those of this machine")
    number = _BY_KIND.get((_KIND_BY_FORMAT.get(letter, ""), view.itemsize))
    if number is None:
        raise _unsupported(f"'{text}' of {view.itemsize} bytes")
    shape = tuple(view.shape[: view.ndim]) if view.ndim else ()
    strides = tuple(view.strides[: view.ndim]) if view.strides else None  # none: contiguous, as of ctypes
    if strides is not None and is_contiguous(shape, strides, view.itemsize):
        strides = None
    return Borrowed(view.buf or 0, _count(shape), number, shape, strides, bool(view.readonly), export)


def _from_dlpack(owner: Any) -> Borrowed:
    tensor = _dlpack.read(owner)
    number = 1 if tensor.kind == "bf" and tensor.bits == 16 else _BY_KIND.get((tensor.kind, tensor.bits // 8))
    if number is None or tensor.lanes != 1:
        lanes = f"x{tensor.lanes}" if tensor.lanes != 1 else ""
        raise _unsupported(f"of DLPack type {tensor.kind}{tensor.bits}{lanes}")
    itemsize = SIZES[number]
    strides = None if tensor.strides is None else tuple(stride * itemsize for stride in tensor.strides)
    if strides is not None and is_contiguous(tensor.shape, strides, itemsize):
        strides = None
    return Borrowed(tensor.address, _count(tensor.shape), number, tensor.shape, strides, tensor.readonly,
                    tensor.capsule)


def borrow(owner: Any) -> Borrowed:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(owner, numpy.ndarray):
        return _from_numpy(owner)
    if hasattr(owner, "__dlpack__"):
        return _from_dlpack(owner)
    try:
        memoryview(owner)
    except TypeError:
        raise TypeError(f"a {type(owner).__name__} has no memory to work on, expected a NumPy array, an object with "
                        "the buffer protocol or one with __dlpack__") from None
    return _from_export(owner)


def _strided(borrowed: Borrowed) -> Any:
    """A NumPy array of unsigned integers over elements that do not follow one another."""
    import numpy

    itemsize = SIZES[borrowed.dtype]
    strides = borrowed.strides or ()
    steps = [(length - 1) * stride for length, stride in zip(borrowed.shape, strides)]
    low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + itemsize
    memory = (ctypes.c_char * (high - low)).from_address(borrowed.address + low)
    return numpy.ndarray(borrowed.shape, f"u{itemsize}", memoryview(memory), -low, strides)


class Sides:
    """The memory of one call, kept alive until the call is done, and what is left to copy then."""

    def __init__(self) -> None:
        self.kept: List[Any] = []
        self._landing: List[Tuple[Borrowed, Any]] = []

    def input(self, owner: Any) -> Tuple[int, int, int]:
        """Address, count and element type."""
        borrowed = borrow(owner)
        self.kept.append(borrowed.owner)
        if borrowed.strides is None:
            return borrowed.address, borrowed.elements, borrowed.dtype
        return self._copy(borrowed).ctypes.data, borrowed.elements, borrowed.dtype

    def output(self, owner: Any) -> Tuple[int, int, int]:
        """The same of memory that is written, and in place read before."""
        borrowed = borrow(owner)
        if borrowed.readonly:
            raise InvalidArgumentError(f"the output, a {type(owner).__name__}, is read-only")
        self.kept.append(borrowed.owner)
        if borrowed.strides is None:
            return borrowed.address, borrowed.elements, borrowed.dtype
        copy = self._copy(borrowed)  # with its values: some calls leave some outputs as they were
        self._landing.append((borrowed, copy))
        return copy.ctypes.data, borrowed.elements, borrowed.dtype

    def _copy(self, borrowed: Borrowed) -> Any:
        try:
            copy = _strided(borrowed).copy()
        except ImportError:
            raise UnsupportedError("the elements are not contiguous, for which NumPy is needed") from None
        self.kept.append(copy)
        return copy

    def land(self) -> None:
        """After a call that ended well."""
        for borrowed, copy in self._landing:
            _strided(borrowed)[...] = copy
        self._landing.clear()

    def clear(self) -> None:
        self._landing.clear()
        self.kept.clear()
