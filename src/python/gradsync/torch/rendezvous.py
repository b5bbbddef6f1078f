"""How torch.distributed's processes meet when gradsync knows better than `env://`.

`init_process_group` without an init_method expects RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. `gradsync run`, mpirun and srun set
none of these, but gradsync finds rank, size and peers from what they do set. So where MASTER_ADDR is missing and one of them started
the process, `env://` and, always, `gradsync://` let the ranks meet over a Communicator: rank 0 serves a TCPStore on a free port and
tells the others where.
"""

from __future__ import annotations

import datetime
import os
import socket
import sys
from typing import Any, Iterator, Optional, Tuple
from urllib.parse import urlparse

import torch.distributed as dist
from torch.distributed.rendezvous import register_rendezvous_handler

SCHEME = "gradsync"
PLACE_BYTES = 256
_RANK_VARIABLES = ("GRADSYNC_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def register() -> None:
    """Makes `gradsync://` known, and `env://` fall back on it. Done by `import gradsync.torch`; again does nothing."""
    module = sys.modules[register_rendezvous_handler.__module__]  # as an attribute the name is that of a function
    handlers = getattr(module, "_rendezvous_handlers", {})
    if SCHEME in handlers:
        return
    register_rendezvous_handler(SCHEME, _meet)
    original = handlers.get("env")
    if original is not None:
        handlers["env"] = lambda url, **settings: (_meet if _better_than_env() else original)(url, **settings)


def _better_than_env() -> bool:
    return "MASTER_ADDR" not in os.environ and any(name in os.environ for name in _RANK_VARIABLES)


def _meet(_url: str, timeout: Optional[datetime.timedelta] = None,
          **_settings: Any) -> Iterator[Tuple[dist.Store, int, int]]:
    """`timeout`: torch.distributed passes that of the group; without one each library has its own."""
    from gradsync import Communicator

    seconds = None if timeout is None else timeout.total_seconds()
    for_store = {} if timeout is None else {"timeout": timeout}
    with Communicator.create(start_timeout=seconds, timeout=seconds) as ranks:
        store = None
        place = bytearray(PLACE_BYTES)
        if ranks.rank == 0:
            host = "127.0.0.1" if set(ranks.hosts) == {0} else _address_towards(os.environ.get("GRADSYNC_RENDEZVOUS", ""))
            store = dist.TCPStore(host, 0, ranks.size, True, wait_for_workers=False, **for_store)
            named = f"{store.port} {host}".encode()
            place[:len(named)] = named
        ranks.broadcast(place, root=0)
        port, host = place.rstrip(b"\0").decode().split(" ", 1)
        if store is None:
            store = dist.TCPStore(host, int(port), ranks.size, False, wait_for_workers=False, **for_store)
        ranks.barrier()  # rank 0's store has heard everyone
        met = (store, ranks.rank, ranks.size)
    yield met
    raise RuntimeError("gradsync:// rendezvous: a second meeting is not possible")


def _address_towards(rendezvous: str) -> str:
    """This host's address as the others reach it: the one that it talks to the rendezvous from."""
    host = urlparse(rendezvous).hostname
    if host is None:
        return socket.gethostname()
    family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # of a datagram socket: nothing is sent
        here: str = probe.getsockname()[0]
        return here
