"""gradsync as a backend of torch.distributed.

    import gradsync.torch
    torch.distributed.init_process_group("gradsync")

The import registers the backend; PyTorch 2.15 and later find it without. Everything else is PyTorch as it is documented, and
two things are offered besides: `empty`, and what is written about the group at `group_of`.
"""
from __future__ import annotations

import atexit
import datetime
import functools
import importlib.util
import threading
import warnings
from typing import Any, Callable, List, Optional, Sequence, Union

if importlib.util.find_spec("gradsync.torch._c10d") is None:
    raise ImportError("gradsync.torch: this build of gradsync has no PyTorch backend; it is made where the build finds a Python with torch "
                      "(`make`, which says when it leaves it out, or `pip install --no-build-isolation .`)")

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as _c10d_python

from gradsync.torch import _c10d, rendezvous
from gradsync.torch._c10d import ProcessGroupGradsync

ProcessGroupGradsync.__module__ = __name__
__all__ = ["ProcessGroupGradsync", "abort", "empty", "group_of", "register"]

NAME = "gradsync"
_TAG_MAX = 2**31 - 1
_UNSET = datetime.timedelta(milliseconds=-1)  # as in C++: the group's own timeout
_groups = _c10d.Groups()
_making = threading.local()  # .members: of the group that new_group makes now


def register() -> None:
    """Registers the backend "gradsync" with torch.distributed. Done by the import; again does nothing."""
    if hasattr(dist.Backend, NAME.upper()):
        return
    _check_version()
    if torch.__version__.split(".")[0] == "1":
        dist.Backend.register_backend(NAME, _create)
    elif hasattr(_options_type(), "enable_reconfigure"):
        dist.Backend.register_backend(NAME, _create_extended, extended_api=True, devices=["cpu"])
    else:
        dist.Backend.register_backend(NAME, _create, devices=["cpu"])
    rendezvous.register()
    for method in ("send", "recv", "recv_anysource"):
        _check_tags(method)
    _extend("new_group", _new_group)
    _extend("monitored_barrier", _monitored_barrier)
    _extend("destroy_process_group", _destroy_process_group)
    # Before the interpreter ends: afterwards no thread may run Python's callbacks of futures.
    atexit.register(_at_exit)


def group_of(group: Optional[dist.ProcessGroup] = None) -> Optional[ProcessGroupGradsync]:
    """The ProcessGroupGradsync behind a process group (None: the default one), or None if another backend is."""
    if group is None:
        group = _c10d_python._get_default_group()
    if isinstance(group, ProcessGroupGradsync):
        return group
    try:
        backend = group._get_backend(torch.device("cpu"))
    except (AttributeError, RuntimeError):  # of 1.13, whose groups have no backends; a group without one for the CPU
        return None
    return backend if isinstance(backend, ProcessGroupGradsync) else None


def empty(*size: Union[int, Sequence[int]], dtype: Optional[torch.dtype] = None,
          group: Optional[dist.ProcessGroup] = None) -> torch.Tensor:
    """An uninitialised tensor in memory that all ranks of the host read in place.

    Calls of the group on such tensors cost no copy from 16 KiB on. Ranks may differ in what memory they pass. The memory
    is freed with the last tensor that uses it. `group`: None is the default one.
    """
    backend = group_of(group)
    if backend is None:
        raise RuntimeError("gradsync.torch.empty: the process group is not of the backend gradsync")
    sizes: Any = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return backend.empty(list(sizes), dtype or torch.get_default_dtype())


def abort(why: str = "abort() was called", group: Optional[dist.ProcessGroup] = None) -> None:
    """Ends every call of the group that is under way and every later one, on all ranks, with RuntimeError saying why."""
    backend = group_of(group)
    if backend is None:
        raise RuntimeError("gradsync.torch.abort: the process group is not of the backend gradsync")
    backend._abort(why)


def _check_version() -> None:
    here, built = torch.__version__.split(".")[:2], _c10d.torch_version.split(".")[:2]
    if here != built:
        raise ImportError(f"gradsync.torch was built for torch {_c10d.torch_version}, this is torch {torch.__version__}")


def _options_type() -> Any:
    backend = getattr(torch._C._distributed_c10d, "Backend", None)
    return getattr(backend, "Options", None)


def _create(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> ProcessGroupGradsync:
    return _groups.create(store, rank, size, timeout, members=_members())


def _create_extended(options: Any, backend_options: Any) -> ProcessGroupGradsync:
    deferred = bool(getattr(backend_options, "enable_reconfigure", False))
    return _groups.create(options.store, options.group_rank, options.group_size, options.timeout, deferred, _members())


def _check_tags(name: str) -> None:
    """PyTorch takes 64 bits of a tag and passes on 32: others would come from another message's."""
    original = getattr(ProcessGroupGradsync, name)

    @functools.wraps(original)
    def checked(self: ProcessGroupGradsync, tensors: Any, *rest: Any, **named: Any) -> Any:
        tag = named["tag"] if "tag" in named else rest[-1] if rest else 0
        if isinstance(tag, int) and not 0 <= tag <= _TAG_MAX:
            raise RuntimeError(f"gradsync rank {self.rank()} of {self.size()}: {name}: tag {tag}, expected 0 to {_TAG_MAX}")
        return original(self, tensors, *rest, **named)

    setattr(ProcessGroupGradsync, name, checked)


def _extend(name: str, ours: Callable[..., Any]) -> None:
    """Puts `ours(original, …)` before a function of torch.distributed, for our groups; others go on to the original."""
    original = getattr(_c10d_python, name)
    wrapper = functools.wraps(original)(functools.partial(ours, original))
    setattr(_c10d_python, name, wrapper)
    setattr(dist, name, wrapper)


def _is_member(group: Any) -> bool:
    return group is not getattr(_c10d_python.GroupMember, "NON_GROUP_MEMBER", None)


def _new_group(original: Callable[..., Any], ranks: Optional[Sequence[int]] = None, *arguments: Any, **named: Any) -> Any:
    """Ranks that make groups in different orders meet in one place of the store for different groups."""
    _making.members = sorted(ranks or [])
    try:
        return original(ranks, *arguments, **named)
    finally:
        _making.members = []


def _members() -> List[int]:
    members: List[int] = getattr(_making, "members", [])
    return members


def _monitored_barrier(original: Callable[..., None], group: Any = None, timeout: Optional[datetime.timedelta] = None,
                       wait_all_ranks: bool = False) -> None:
    if dist.is_initialized() and _is_member(group):
        backend = group_of(group)
        if backend is not None:
            return backend._monitored_barrier(_UNSET if timeout is None else timeout, wait_all_ranks)
    return original(group, timeout, wait_all_ranks)


def _known_groups() -> List[Any]:
    world = getattr(_c10d_python, "_world", None)
    return list(world.pg_map if world is not None else _c10d_python._pg_map)


def _destroy_process_group(original: Callable[..., None], group: Any = None) -> None:
    """PyTorch only forgets the group, which lives on where somebody else holds it, such as DistributedDataParallel."""
    world = dist.is_initialized() and (group is None or group is _c10d_python.GroupMember.WORLD)
    ours = _known_groups() if world else [group] if _is_member(group) and group is not None else []
    backends = [group_of(each) for each in ours]
    original(group)
    for backend in backends:
        if backend is not None:
            backend._shutdown()
            _warn(backend._untold_mismatch())


def _at_exit() -> None:
    for text in _groups.shutdown():
        _warn(text)


def _warn(text: str) -> None:
    """The group has ended, so no call is left that could raise it."""
    if text:
        warnings.warn(text, RuntimeWarning, stacklevel=4)


register()
