"""A group of processes (or threads) that exchange data together. Types and overloads are in _communicator.pyi."""
from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _library, _store
from ._buffers import Sides
from ._errors import ClosedError, InvalidArgumentError
from ._library import check, lib, nanoseconds
from ._interrupt import interruptible
from ._memory import allocate
from ._names import ANY_RANK, algorithm_number, op_number, transport_number
from ._work import SLICE_NS, Operation, Work

(_ALL_REDUCE, _REDUCE_SCATTER, _ALL_GATHER, _BROADCAST, _REDUCE, _GATHER, _SCATTER, _ALL_TO_ALL, _BARRIER, _SEND,
 _RECV) = range(11)

def _nothing(other: Optional[Tuple[int, int, int]]) -> Tuple[int, int, int]:
    """Address, count and element type of a side that this rank does not have."""
    return 0, 0, 5 if other is None else other[2]


class Counters(NamedTuple):
    """What has crossed the wire of a communicator, in whole messages, and what was reduced."""

    messages_sent: int
    bytes_sent: int
    messages_received: int
    bytes_received: int
    elements_reduced: int
    operations: int
    staging_bytes_peak: int


class _Handle:
    """What a communicator leaves behind when it goes: an object of its own, for the finalizer."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.lock = threading.Lock()
        self.under_way: Dict[int, Operation] = {}  # their memory must live until they are done
        self.swept = 16

    def end(self) -> None:
        value, self.value = self.value, 0
        lib.gradsync_destroy(value)  # of no consequence if it was destroyed before, or is a parent's
        self.under_way.clear()


def _options(given: Dict[str, Any], keep: List[Any]) -> _library.Options:
    options = _library.Options(ctypes.sizeof(_library.Options), -1, -1, environment=1)
    for name in ("rank", "size"):
        if given[name] is not None:
            setattr(options, name, given[name])
    for name in ("rendezvous", "interfaces", "host"):
        if given[name] is not None:
            setattr(options, name, given[name].encode())
    for name in ("timeout", "start_timeout"):
        setattr(options, name + "_ns", nanoseconds(given[name], name))
    options.fault_seed, options.lanes = given["fault_seed"], given["lanes"]
    if given["transport"] != "auto":
        options.transport = transport_number(given["transport"])
    if given["store"] is not None:
        keep.append(_store.functions_of(given["store"], keep))
        options.store = ctypes.pointer(keep[-1])
    return options


def _call_options(async_op: bool, timeout: Optional[float] = None, algorithm: str = "auto", segments: int = 0,
                  tag: int = 0) -> _library.CallOptions:
    """A blocking call is one that is waited for at once."""
    if not 0 <= tag < 2**32:
        raise InvalidArgumentError(f"the tag is {tag}, expected 0 to {2**32 - 1}")
    number = 0 if algorithm == "auto" else algorithm_number(algorithm)
    return _library.CallOptions(_library.CALL_OPTIONS_BYTES, number, segments, nanoseconds(timeout, "timeout"), tag,
                                0 if async_op else _library.MOVED_BY_WAITER)


def _counts(counts: Sequence[int]) -> Any:
    if any(count < 0 for count in counts):
        raise InvalidArgumentError(f"the counts are {list(counts)}, expected none below 0")
    return (ctypes.c_size_t * len(counts))(*counts)


class Communicator:
    """A group, seen from one rank. Made by `create`, `threads`, `split` and `group`.

    Every rank calls the same collectives in the same order with matching arguments; a mismatch is an error on every
    rank. Counts are in elements. `async_op=True` returns a Work at once instead of waiting.
    """

    def __init__(self, handle: int) -> None:
        self._handle = _Handle(handle)
        self._finalizer = weakref.finalize(self, self._handle.end)
        rank, size = ctypes.c_int(), ctypes.c_int()
        check(lib.gradsync_rank(handle, ctypes.byref(rank)))
        check(lib.gradsync_size(handle, ctypes.byref(size)))
        self._rank, self._size = rank.value, size.value

    # Life ---------------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, *, rank=None, size=None, rendezvous=None, interfaces=None, host=None, timeout=None,
               start_timeout=None, transport="auto", lanes=0, fault_seed=0, store=None):
        """Joins the group; blocks until all ranks are there.

        What is not given comes from the environment: that of `gradsync run`, torchrun, mpirun or srun. With nothing
        there the process is a world of one. `store`: where the ranks meet in place of a rendezvous, see KeyValueStore.
        """
        keep: List[Any] = []
        given = dict(rank=rank, size=size, rendezvous=rendezvous, interfaces=interfaces, host=host, timeout=timeout,
                     start_timeout=start_timeout, transport=transport, lanes=lanes, fault_seed=fault_seed, store=store)
        options = _options(given, keep)

        def join():
            handle = ctypes.c_void_p()
            code = lib.gradsync_create(ctypes.byref(options), ctypes.byref(handle))
            if code != 0:
                raise _library.last_error(code) from _store.failure_of(keep)
            return cls(handle.value)

        return interruptible(join)

    @classmethod
    def threads(cls, size, *, timeout=None):
        """`size` communicators of one group inside this process, one a rank, for threads."""
        options = _library.Options(ctypes.sizeof(_library.Options), -1, -1, timeout_ns=nanoseconds(timeout, "timeout"))
        if not 0 < size < 2**32:
            raise InvalidArgumentError(f"a world of {size} threads, expected 1 or more")
        handles = (ctypes.c_void_p * size)()
        check(lib.gradsync_threads(size, ctypes.byref(options), handles))
        return [cls(handle) for handle in handles]

    def destroy(self):
        """Ends what is under way here; local, and may be called twice. The peers see this rank leave."""
        self._finalizer()

    def abort(self, why="abort() was called"):
        """Ends every call under way and every later one with AbortedError, here and on the peers. From any thread."""
        check(lib.gradsync_abort(self._open(), why.encode()))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        """An exception of this rank's own ends the others' calls, too: they hear of it at once."""
        if kind is not None and self._handle.value:
            lib.gradsync_abort(self._handle.value, f"{kind.__name__}: {error}".encode())
        self.destroy()

    def _open(self) -> int:
        if not self._handle.value:
            raise ClosedError("the communicator was destroyed")
        return self._handle.value

    # Answers ------------------------------------------------------------------------------------------------------

    @property
    def rank(self):
        return self._rank

    @property
    def size(self):
        return self._size

    @property
    def hosts(self):
        """Host number of each rank, numbered by first appearance."""
        numbers = (ctypes.c_uint32 * self._size)()
        check(lib.gradsync_hosts(self._open(), numbers, self._size))
        return list(numbers)

    def describe(self, rank):
        """Such as "rank 3 (host b, 192.0.2.7:4711)"."""
        text = ctypes.create_string_buffer(1024)
        check(lib.gradsync_describe(self._open(), rank, text, len(text), None))
        return text.value.decode(errors="replace")

    def counters(self):
        counted = _library.Counters(ctypes.sizeof(_library.Counters))
        check(lib.gradsync_get_counters(self._open(), ctypes.byref(counted)))
        return Counters(*(getattr(counted, name) for name in Counters._fields))

    def check(self):
        """Raises why this communicator has failed, if it has."""
        check(lib.gradsync_status(self._open()))

    def __repr__(self):
        state = "" if self._handle.value else ", destroyed"
        return f"<gradsync.Communicator: rank {self._rank} of {self._size}{state}>"

    # Parts --------------------------------------------------------------------------------------------------------

    def split(self, color, key=0):
        """Ranks of equal colour form a new communicator, ordered by key, then by rank. None where it is negative."""
        return interruptible(lambda: self._part(lib.gradsync_split, color, key), self._interrupt)

    def group(self, ranks):
        """A communicator of these ranks, in this order. Only they call it."""
        listed = (ctypes.c_int * len(ranks))(*ranks)
        return self._part(lib.gradsync_group, listed, len(ranks))

    def _part(self, function: Any, *arguments: Any) -> Optional["Communicator"]:
        part = ctypes.c_void_p()
        check(function(self._open(), *arguments, ctypes.byref(part)))
        return Communicator(part.value) if part.value else None

    def tune(self):
        """Measures links and reductions, and chooses algorithms by that from then on. Collective."""
        interruptible(lambda: check(lib.gradsync_tune(self._open())), self._interrupt)

    def allocate(self, shape, dtype="float32"):
        """A NumPy array of zeros in registered memory, which the other ranks of the host read where it lies."""
        return allocate(self._open(), shape, dtype)

    # Operations ---------------------------------------------------------------------------------------------------

    def all_reduce(self, x, op="sum", out=None, *, async_op=False, timeout=None, algorithm="auto", segments=0):
        """x (or `out`, where given) becomes the reduction of every rank's x."""
        return self._call(_ALL_REDUCE, x, x if out is None else out, async_op,
                          (timeout, algorithm, segments), op=op)

    def reduce_scatter(self, x, out, op="sum", counts=None, *, async_op=False, timeout=None, algorithm="auto",
                       segments=0):
        """x holds a block for each rank; `out` becomes the reduction of all ranks' blocks for this rank."""
        return self._call(_REDUCE_SCATTER, x, out, async_op, (timeout, algorithm, segments), op=op,
                          counts=counts)

    def all_gather(self, x, out, counts=None, *, async_op=False, timeout=None, algorithm="auto", segments=0):
        """`out` becomes the x of every rank, one after another."""
        return self._call(_ALL_GATHER, x, out, async_op, (timeout, algorithm, segments), counts=counts)

    def broadcast(self, x, root=0, *, async_op=False, timeout=None, algorithm="auto", segments=0):
        """The root's x to everyone's."""
        return self._call(_BROADCAST, None, x, async_op, (timeout, algorithm, segments), root=root)

    def reduce(self, x, root=0, op="sum", out=None, *, async_op=False, timeout=None, algorithm="auto", segments=0):
        """The root's x (or `out`, where given) becomes the reduction of every rank's x."""
        here = self._rank == root
        return self._call(_REDUCE, x, (x if out is None else out) if here else None, async_op,
                          (timeout, algorithm, segments), op=op, root=root)

    def gather(self, x, out=None, root=0, counts=None, *, async_op=False, timeout=None, algorithm="auto", segments=0):
        """The root's `out` becomes the x of every rank, one after another."""
        return self._call(_GATHER, x, out if self._rank == root else None, async_op,
                          (timeout, algorithm, segments), root=root, counts=counts)

    def scatter(self, x, out, root=0, counts=None, *, async_op=False, timeout=None, algorithm="auto", segments=0):
        """Block r of the root's x to rank r's `out`. Elsewhere x may be None."""
        return self._call(_SCATTER, x if self._rank == root else None, out, async_op,
                          (timeout, algorithm, segments), root=root, counts=counts)

    def all_to_all(self, x, out, send_counts=None, recv_counts=None, *, async_op=False, timeout=None, algorithm="auto",
                   segments=0):
        """Block p of x to rank p; block p of `out` from rank p."""
        if (send_counts is None) != (recv_counts is None):
            raise InvalidArgumentError("all_to_all: send_counts and recv_counts must be given together")
        return self._call(_ALL_TO_ALL, x, out, async_op, (timeout, algorithm, segments),
                          counts=send_counts, recv_counts=recv_counts)

    def barrier(self, *, async_op=False, timeout=None, algorithm="auto", segments=0):
        """Returns when all ranks have called it."""
        return self._call(_BARRIER, None, None, async_op, (timeout, algorithm, segments))

    def send(self, x, dest, tag=0, *, timeout=None):
        """To one rank. Messages of one pair and tag arrive in order; those of other tags do not hold them up."""
        self._call(_SEND, x, None, False, (timeout,), root=dest, tag=tag)

    def isend(self, x, dest, tag=0, *, timeout=None):
        return self._call(_SEND, x, None, True, (timeout,), root=dest, tag=tag)

    def recv(self, x, source=ANY_RANK, tag=0, *, timeout=None):
        """From one rank, or from whichever has sent; returns its rank."""
        operation = Operation()
        self._run(operation, _RECV, None, x, _call_options(False, timeout, tag=tag), root=source)
        return operation.source()

    def irecv(self, x, source=ANY_RANK, tag=0, *, timeout=None):
        return self._call(_RECV, None, x, True, (timeout,), root=source, tag=tag)

    # ---------------------------------------------------------------------------------------------------------------

    def _call(self, collective: int, x: Any, out: Any, async_op: bool, how: Tuple[Any, ...], tag: int = 0,
              **more: Any) -> Optional[Work]:
        operation = Operation()
        options = _call_options(async_op, *how, tag=tag)
        if not async_op:
            self._run(operation, collective, x, out, options, **more)
            return None
        self._begin(operation, collective, x, out, options, **more)
        return Work(operation, self)

    def _run(self, operation: Operation, *what: Any, **more: Any) -> None:
        """A blocking call. What interrupts it (Ctrl-C) ends the communicator: half a call cannot be left."""
        try:
            self._begin(operation, *what, **more)
            while not operation.poll(SLICE_NS):
                pass
        except BaseException as error:
            if operation.begun() and not operation.done:
                self._interrupt(error)
            raise
        self._forget(operation)
        if operation.error is not None:
            raise operation.error

    def _begin(self, operation: Operation, collective: int, x: Any, out: Any, options: _library.CallOptions,
               op: Any = 0, root: int = 0, counts: Optional[Sequence[int]] = None,
               recv_counts: Optional[Sequence[int]] = None) -> None:
        handle, sides = self._open(), operation.sides
        output = None if out is None else sides.output(out)
        given = None if x is None else output if x is out else sides.input(x)
        given, output = given or _nothing(output), output or _nothing(given)
        call = _library.Call(_library.CALL_BYTES, collective, op_number(op) if op != 0 else 0, root, 0,
                             (given[0], given[1], given[2], 0), (output[0], output[1], output[2], 0))
        if counts is not None:
            call.counts_length, call.counts = len(counts), _counts(counts)
            if recv_counts is not None:
                if len(recv_counts) != len(counts):
                    raise InvalidArgumentError(f"all_to_all: {len(counts)} send counts and {len(recv_counts)} receive "
                                               "counts")
                call.recv_counts = _counts(recv_counts)
        call.options = ctypes.pointer(options)
        self._remember(operation)  # first, lest a signal in between leaves a call whose memory goes
        code = lib.gradsync_start(handle, ctypes.byref(call), ctypes.byref(operation.work))
        if code != 0:
            error = _library.last_error(code)
            self._forget(operation)
            raise error

    def _interrupt(self, error: BaseException) -> None:
        if self._handle.value:
            lib.gradsync_abort(self._handle.value, f"{type(error).__name__} in a blocking call".encode())

    def _remember(self, operation: Operation) -> None:
        """Keeps its memory until it is done. Those that nobody waits for are found in passing."""
        handle = self._handle
        with handle.lock:
            handle.under_way[id(operation)] = operation
            if len(handle.under_way) < handle.swept:
                return
            candidates = list(handle.under_way.values())
        for candidate in candidates:
            if candidate.poll(0):
                self._forget(candidate)
        handle.swept = 16 + 2 * len(handle.under_way)

    def _forget(self, operation: Operation) -> None:
        with self._handle.lock:
            self._handle.under_way.pop(id(operation), None)
