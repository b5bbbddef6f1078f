"""libgradsync.so through ctypes, which gives the interpreter lock back while a call runs."""
from __future__ import annotations

import ctypes
import pathlib
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Optional

from . import _errors
from ._version import __version__

FOLDER = pathlib.Path(__file__).parent
SONAME = "libgradsync.so." + ".".join(__version__.split(".")[:2])


SET = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_size_t)
GET = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, c_void_p)
ADD = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, POINTER(c_int64))
REMOVE = CFUNCTYPE(c_int32, c_void_p, c_char_p)


class Store(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("context", c_void_p), ("set", SET), ("get", GET), ("add", ADD), ("remove", REMOVE),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("rank", c_int64), ("size", c_int64), ("rendezvous", c_char_p),
        ("interfaces", c_char_p), ("host", c_char_p), ("timeout_ns", c_int64), ("start_timeout_ns", c_int64),
        ("fault_seed", c_uint64), ("store", POINTER(Store)), ("transport", c_int32), ("lanes", c_uint32),
        ("environment", c_int32), ("reserved", c_int32),
    ]


class CallOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("algorithm", c_int32), ("segments", c_uint32), ("timeout_ns", c_int64),
        ("tag", c_uint32), ("flags", c_uint32),
    ]


MOVED_BY_WAITER = 1  # flags of CallOptions


class View(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("count", c_size_t), ("dtype", c_int32), ("reserved", c_int32)]


class Call(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("collective", c_int32), ("op", c_int32), ("root", c_int32),
        ("counts_length", c_uint32), ("input", View), ("output", View), ("counts", POINTER(c_size_t)),
        ("recv_counts", POINTER(c_size_t)), ("options", POINTER(CallOptions)),
    ]


CALL_BYTES, CALL_OPTIONS_BYTES = ctypes.sizeof(Call), ctypes.sizeof(CallOptions)


class Counters(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_uint64) for name in ("messages_sent", "bytes_sent", "messages_received", "bytes_received",
                                      "elements_reduced", "operations", "staging_bytes_peak")]


_OUT_INT, _OUT_HANDLE = POINTER(c_int), POINTER(c_void_p)
_CODES = {  # functions that return a code
    "gradsync_dtype_named": [c_char_p, POINTER(c_int32)],
    "gradsync_op_named": [c_char_p, POINTER(c_int32)],
    "gradsync_algorithm_named": [c_char_p, POINTER(c_int32)],
    "gradsync_transport_named": [c_char_p, POINTER(c_int32)],
    "gradsync_bytes_assign": [c_void_p, c_char_p, c_size_t],
    "gradsync_create": [POINTER(Options), _OUT_HANDLE],
    "gradsync_threads": [c_uint32, POINTER(Options), _OUT_HANDLE],
    "gradsync_destroy": [c_void_p],
    "gradsync_abort": [c_void_p, c_char_p],
    "gradsync_rank": [c_void_p, _OUT_INT],
    "gradsync_size": [c_void_p, _OUT_INT],
    "gradsync_status": [c_void_p],
    "gradsync_describe": [c_void_p, c_int, c_char_p, c_size_t, POINTER(c_size_t)],
    "gradsync_hosts": [c_void_p, POINTER(c_uint32), c_size_t],
    "gradsync_get_counters": [c_void_p, POINTER(Counters)],
    "gradsync_split": [c_void_p, c_int, c_int, _OUT_HANDLE],
    "gradsync_group": [c_void_p, _OUT_INT, c_size_t, _OUT_HANDLE],
    "gradsync_tune": [c_void_p],
    "gradsync_allocate": [c_void_p, c_size_t, _OUT_HANDLE, _OUT_HANDLE],
    "gradsync_memory_free": [c_void_p],
    "gradsync_start": [c_void_p, POINTER(Call), _OUT_HANDLE],
    "gradsync_work_done": [c_void_p, _OUT_INT],
    "gradsync_work_wait": [c_void_p],
    "gradsync_work_wait_for": [c_void_p, c_int64, _OUT_INT],
    "gradsync_work_status": [c_void_p],
    "gradsync_work_sequence": [c_void_p, POINTER(c_uint64)],
    "gradsync_work_source": [c_void_p, _OUT_INT],
    "gradsync_work_completed_at": [c_void_p, POINTER(c_int64)],
    "gradsync_work_free": [c_void_p],
}


def _load() -> Any:
    path = FOLDER / "_lib" / SONAME
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"gradsync {__version__}: its library cannot be loaded: {error}") from None
    library.gradsync_version.restype = c_char_p
    version = library.gradsync_version().decode()
    if version != __version__:
        raise ImportError(f"the Python package gradsync has version {__version__}, but its library {path} has "
                          f"version {version}; install them together")
    for name, arguments in _CODES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int32
    library.gradsync_error_message.restype = c_char_p
    library.gradsync_error_peer.restype = c_int
    return library


lib = _load()


def last_error(code: int) -> _errors.Error:
    """The exception of the call that has just returned this code in this thread."""
    peer = lib.gradsync_error_peer()
    message = lib.gradsync_error_message().decode(errors="replace")
    return _errors.by_code.get(code, _errors.InternalError)(message, peer if peer >= 0 else None)


def check(code: int) -> None:
    if code != 0:
        raise last_error(code)


def nanoseconds(seconds: Optional[float], what: str) -> int:
    """For the library, to which 0 means: not given."""
    if seconds is None:
        return 0
    ns = round(seconds * 1e9)
    if ns <= 0:
        raise _errors.InvalidArgumentError(f"{what} is {seconds:g} s, expected more than 0")
    return ns
