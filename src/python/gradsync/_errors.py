"""What can go wrong, as exceptions: one class for each code of the library."""
from __future__ import annotations

import builtins
from typing import Dict, Optional, Tuple, Type


class Error(RuntimeError):
    """A failure. The message names the operation, its sequence number and the peer where they are known."""

    code: str = "error"  # the library's name of the cause

    def __init__(self, message: str, peer: Optional[int] = None) -> None:
        super().__init__(message)
        self.peer = peer  # the rank to blame or waited for

    def __reduce__(self) -> Tuple[Type["Error"], Tuple[str, Optional[int]]]:
        return type(self), (str(self), self.peer)


class InvalidArgumentError(Error, ValueError):
    """The arguments cannot be right. Nothing was done, and the communicator is as it was."""

    code = "invalid_argument"


class MismatchError(Error):
    """Ranks called different things."""

    code = "mismatch"


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed; the message names whom it waited for."""

    code = "timeout"


class PeerLostError(Error, ConnectionError):
    """A peer's process or connection is gone; `peer` is its rank."""

    code = "peer_lost"


class AbortedError(Error):
    """`abort` was called, here or on a peer."""

    code = "aborted"


class OutOfMemoryError(Error, MemoryError):
    code = "out_of_memory"


class OutOfRangeError(Error):
    code = "out_of_range"


class UnsupportedError(Error, NotImplementedError):
    """Known, but not available for this combination."""

    code = "unsupported"


class ProtocolError(Error):
    """Bytes that are not gradsync's, or of another version."""

    code = "protocol"


class UnavailableError(Error, OSError):
    """A resource of the system could not be had."""

    code = "unavailable"


class ClosedError(Error):
    """Use after `destroy`, or of the parent's communicator in a forked child."""

    code = "closed"


class InternalError(Error):
    """A bug in gradsync."""

    code = "internal"


class NotFiniteError(Error, ArithmeticError):
    code = "not_finite"


# In the order of gradsync_code, from 1.
_CLASSES: Tuple[Type[Error], ...] = (
    InvalidArgumentError, MismatchError, TimeoutError, PeerLostError, AbortedError, OutOfMemoryError, OutOfRangeError,
    UnsupportedError, ProtocolError, UnavailableError, ClosedError, InternalError, NotFiniteError,
)
by_code: Dict[int, Type[Error]] = dict(enumerate(_CLASSES, 1))
