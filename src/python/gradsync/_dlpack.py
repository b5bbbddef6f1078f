"""Reading what __dlpack__ exports: DLPack's structs, unversioned and of version 1."""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional, Tuple

from ._errors import UnsupportedError

# Memory that this process can read and write: main memory, and main memory pinned for a device.
_READABLE = {1, 3, 11}
_DEVICES = {1: "cpu", 2: "CUDA", 3: "CUDA host", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 11: "ROCm host",
            13: "CUDA managed", 14: "oneAPI", 15: "WebGPU", 16: "Hexagon", 17: "MAIA"}
_KINDS = {0: "i", 1: "u", 2: "f", 4: "bf", 5: "c", 6: "b"}
_READ_ONLY = 1  # of the versioned struct's flags


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.argtypes, _get_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


class Read(NamedTuple):
    address: int
    kind: str
    bits: int
    lanes: int
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]]  # in elements; None: contiguous
    readonly: bool
    capsule: Any  # frees the export when it goes


def _refuse_devices(owner: Any, device: Tuple[int, int]) -> None:
    kind, number = int(device[0]), int(device[1])
    if kind not in _READABLE:
        device_name = _DEVICES.get(kind, f"type {kind}")
        raise UnsupportedError(f"the {type(owner).__name__} is on device {device_name}:{number}, "
                               "supported: cpu (and host memory pinned for CUDA or ROCm)")


def _export(owner: Any) -> Any:
    try:
        try:
            return owner.__dlpack__(max_version=(1, 0))
        except TypeError:  # an exporter of before version 1
            return owner.__dlpack__()
    except (BufferError, RuntimeError, ValueError, TypeError) as error:
        raise UnsupportedError(f"the {type(owner).__name__} does not export its memory: {error}") from error


def read(owner: Any) -> Read:
    if hasattr(owner, "__dlpack_device__"):
        _refuse_devices(owner, owner.__dlpack_device__())
    capsule = _export(owner)
    readonly = False
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise UnsupportedError(f"the {type(owner).__name__} exports DLPack version {versioned.major}, expected 1")
        readonly = bool(versioned.flags & _READ_ONLY)
        tensor = versioned.tensor
    elif _is_valid(capsule, b"dltensor"):
        tensor = _Managed.from_address(_get_pointer(capsule, b"dltensor")).tensor
    else:
        raise UnsupportedError(f"the __dlpack__ of {type(owner).__name__} gave no tensor")
    _refuse_devices(owner, (tensor.device_type, tensor.device_id))
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    return Read((tensor.data or 0) + tensor.byte_offset, _KINDS.get(tensor.code, f"code {tensor.code} "), tensor.bits,
                tensor.lanes, shape, strides, readonly, capsule)
