"""A store of the program's own, where the ranks meet in place of a rendezvous."""
from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Protocol

from ._library import ADD, GET, REMOVE, SET, Store, lib

_OK, _TIMEOUT, _UNAVAILABLE = 0, 3, 10


class KeyValueStore(Protocol):
    """What such a store must do. Each meeting needs a place of its own in it: a prefix before every key, say."""

    def set(self, key: str, value: bytes) -> None:
        """From now on the key has the value, for every rank."""

    def get(self, key: str, timeout: float) -> bytes:
        """Waits until somebody has set the key. Raises TimeoutError if nobody has within `timeout` seconds."""

    def add(self, key: str, amount: int) -> int:
        """Adds to the key's number, 0 at first, and returns the sum: atomic among all ranks."""


class _Failure:
    """What a call of the store raised; the library only hears a code."""

    def __init__(self) -> None:
        self.error: Optional[BaseException] = None

    def code_of(self, error: BaseException) -> int:
        self.error = error
        return _TIMEOUT if isinstance(error, TimeoutError) else _UNAVAILABLE


def functions_of(store: Any, keep: List[Any]) -> Store:
    failure = _Failure()

    def set_value(_context: Any, key: bytes, value: int, size: int) -> int:
        try:
            store.set(key.decode(), ctypes.string_at(value, size))
            return _OK
        except BaseException as error:  # nothing may pass through the library
            return failure.code_of(error)

    def get_value(_context: Any, key: bytes, timeout_ns: int, into: int) -> int:
        try:
            value = bytes(store.get(key.decode(), timeout_ns / 1e9))
            return int(lib.gradsync_bytes_assign(into, value, len(value)))
        except BaseException as error:
            return failure.code_of(error)

    def add_to(_context: Any, key: bytes, amount: int, total: Any) -> int:
        try:
            total[0] = store.add(key.decode(), amount)
            return _OK
        except BaseException as error:
            return failure.code_of(error)

    def remove_key(_context: Any, key: bytes) -> int:
        try:
            if hasattr(store, "remove"):
                store.remove(key.decode())
            return _OK
        except BaseException as error:
            return failure.code_of(error)

    functions = Store(ctypes.sizeof(Store), None, SET(set_value), GET(get_value), ADD(add_to), REMOVE(remove_key))
    keep.append(failure)
    return functions


def failure_of(keep: List[Any]) -> Optional[BaseException]:
    for kept in keep:
        if isinstance(kept, _Failure):
            return kept.error
    return None
