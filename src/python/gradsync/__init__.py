"""Collectives over shared memory and TCP, on NumPy arrays, buffers and DLPack tensors.

    import gradsync, numpy

    with gradsync.Communicator.create() as comm:             # rank, size and rendezvous from the environment
        gradients = numpy.full(1_000_000, comm.rank, "float32")
        comm.all_reduce(gradients, op="avg")
        print(f"rank {comm.rank} of {comm.size}: {gradients[0]:g}")

    gradsync run -n 4 -- python3 program.py
"""
from ._communicator import Communicator, Counters
from ._errors import (AbortedError, ClosedError, Error, InternalError, InvalidArgumentError, MismatchError,
                      NotFiniteError, OutOfMemoryError, OutOfRangeError, PeerLostError, ProtocolError, TimeoutError,
                      UnavailableError, UnsupportedError)
from ._names import ANY_RANK, ReduceOp
from ._store import KeyValueStore
from ._version import __version__
from ._work import Work

create = Communicator.create
threads = Communicator.threads

__all__ = [
    "ANY_RANK", "AbortedError", "ClosedError", "Communicator", "Counters", "Error", "InternalError",
    "InvalidArgumentError", "KeyValueStore", "MismatchError", "NotFiniteError", "OutOfMemoryError", "OutOfRangeError",
    "PeerLostError", "ProtocolError", "ReduceOp", "TimeoutError", "UnavailableError", "UnsupportedError", "Work",
    "__version__", "create", "threads",
]

for _name in __all__:  # in tracebacks and help they go by the name that is imported
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
del _name
