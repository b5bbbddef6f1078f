"""Worlds of processes for the tests of the PyTorch backend: every rank runs a function, and all are gone when it returns."""
import datetime
import multiprocessing
import os
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

import gradsync.torch  # noqa: F401, registers the backend

SECONDS = 60  # of a world; its processes are ended then
TIMEOUT = datetime.timedelta(seconds=20)  # of a group, unless a test is about timeouts


def _rank(rank, world, folder, pipe, body, arguments, timeout):
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gradsync", init_method=f"file://{folder}/meeting", rank=rank, world_size=world, timeout=timeout)
        result = body(rank, world, *arguments)
        if dist.is_initialized():
            dist.destroy_process_group()
        pipe.send((True, result))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    finally:
        pipe.close()
        sys.stdout.flush()


def run(world, body, *arguments, timeout=TIMEOUT, seconds=SECONDS):
    """What body(rank, world, *arguments) returns on each rank, inside a group. AssertionError with the trace of every rank that
    raises, dies or is late."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="gradsync-c10d-") as folder:
        pipes, processes = [], []
        for rank in range(world):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(rank, world, folder, theirs, body, arguments, timeout))
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        try:
            return _results(pipes, processes, time.monotonic() + seconds)
        finally:
            for process in processes:
                process.join(5)
                if process.is_alive():
                    process.kill()
                    process.join(5)


def _results(pipes, processes, until):
    results, wrong = [], []
    for rank, pipe in enumerate(pipes):
        ok, result = False, "is late"
        try:
            if pipe.poll(max(0, until - time.monotonic())):
                ok, result = pipe.recv()
        except EOFError:
            processes[rank].join(5)
            result = f"died with exit code {processes[rank].exitcode}"
        results.append(result)
        if not ok:
            wrong.append(f"rank {rank}: {result}")
    if wrong:
        raise AssertionError("\n".join(wrong))
    for rank, process in enumerate(processes):
        process.join(max(0, until - time.monotonic()))
        if process.exitcode != 0:
            raise AssertionError(f"rank {rank} ended with {process.exitcode}")
    return results


def raised(call, *arguments, **named):
    """The text of the RuntimeError that the call raises."""
    try:
        call(*arguments, **named)
    except RuntimeError as error:
        return str(error)
    raise AssertionError(f"{call} raised nothing")


def other_device():
    """A device that is not the CPU and needs no hardware."""
    return torch.device("meta")


def process_exists(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
