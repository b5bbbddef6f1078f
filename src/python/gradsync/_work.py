"""Operations under way."""
from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Any, Optional

from ._buffers import Sides
from ._errors import Error, TimeoutError
from ._library import check, last_error, lib

if TYPE_CHECKING:
    from ._communicator import Communicator

# So often a waiting thread comes back to the interpreter, which then runs handlers of signals such as Ctrl-C.
SLICE_NS = 50_000_000


class Operation:
    """A handle and the memory it works on. The communicator keeps it until it is done, whoever has lost interest."""

    __slots__ = ("work", "sides", "error", "done")

    def __init__(self) -> None:
        self.work = ctypes.c_void_p()  # the handle, once the call has begun
        self.sides = Sides()
        self.done = False
        self.error: Optional[Error] = None

    def __del__(self, free: Any = lib.gradsync_work_free) -> None:
        free(self.work)

    def begun(self) -> bool:
        return self.work.value is not None

    def poll(self, wait_ns: int) -> bool:
        """Waits so long at most; once it is done, lands its output and lets go of its memory."""
        if self.done or not self.begun():
            return self.done
        done = ctypes.c_int()
        check(lib.gradsync_work_wait_for(self.work, wait_ns, ctypes.byref(done)))
        if not done.value:
            return False
        code = lib.gradsync_work_status(self.work)
        if code != 0:
            self.error = last_error(code)
        else:
            self.sides.land()
        self.done = True
        self.sides.clear()
        return True

    def ask(self, function: Any, kind: Any) -> Any:
        value = kind()
        check(function(self.work, ctypes.byref(value)))
        return value.value

    def source(self) -> int:
        return int(self.ask(lib.gradsync_work_source, ctypes.c_int))


class Work:
    """What an asynchronous call returns. It keeps the call's buffers alive; to drop it does not cancel the call."""

    def __init__(self, operation: Operation, communicator: "Communicator") -> None:
        self._operation = operation
        self._communicator = communicator

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until the call is done, which its deadline bounds, and raises what went wrong.

        The interpreter lock is free meanwhile, and Ctrl-C interrupts the wait (not the call: wait again). After
        `timeout` seconds it raises gradsync.TimeoutError, and the call goes on.
        """
        operation = self._operation
        until = None if timeout is None else time.monotonic() + timeout
        while not operation.poll(SLICE_NS if until is None else _slice_until(until)):
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"the call has not ended within {timeout:g} s; it goes on")
        self._communicator._forget(operation)
        if operation.error is not None:
            raise operation.error

    def done(self) -> bool:
        """Whether it has ended, well or not. Never blocks."""
        return self._operation.poll(0)

    is_completed = done

    def exception(self) -> Optional[Error]:
        """What went wrong; None while it is under way and when it ended well."""
        return self._operation.error if self.done() else None

    @property
    def sequence(self) -> int:
        """The call's number on its communicator, from 1."""
        return int(self._operation.ask(lib.gradsync_work_sequence, ctypes.c_uint64))

    @property
    def source(self) -> Optional[int]:
        """The rank that a finished receive got its message from; None of anything else."""
        source = self._operation.source()
        return source if source >= 0 else None

    @property
    def completed_at(self) -> Optional[float]:
        """When it ended, as time.monotonic(); None while it is under way."""
        return int(self._operation.ask(lib.gradsync_work_completed_at, ctypes.c_int64)) / 1e9 or None

    def __repr__(self) -> str:
        operation = self._operation
        state = "under way" if not operation.done else "done" if operation.error is None else repr(operation.error)
        return f"<gradsync.Work: {state}>"


def _slice_until(until: float) -> int:
    return max(0, min(SLICE_NS, round((until - time.monotonic()) * 1e9)))
