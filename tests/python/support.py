"""Worlds for the tests: ranks as threads, and as processes that `gradsync run` starts."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import gradsync

try:
    import numpy
except ImportError:
    numpy = None

DEADLINE = 20.0
needs_numpy = unittest.skipIf(numpy is None, "no NumPy")


def on_threads(size, body, deadline=DEADLINE):
    """Runs body(comm) on every rank; returns the results in rank order, or raises the first rank's exception."""
    comms = gradsync.threads(size, timeout=deadline)
    results, errors = [None] * size, [None] * size

    def rank(comm):
        try:
            results[comm.rank] = body(comm)
        except BaseException as error:
            errors[comm.rank] = error
            comm.abort(f"the test's body failed on rank {comm.rank}")

    threads = [threading.Thread(target=rank, args=(comm,), daemon=True) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * deadline)
    alive = [thread for thread in threads if thread.is_alive()]
    for comm in comms:
        comm.destroy()
    if alive:
        raise AssertionError(f"{len(alive)} of {size} ranks still run after {2 * deadline} s")
    failures = [error for error in errors if error is not None]
    for error in failures:
        if not isinstance(error, gradsync.AbortedError):
            raise error
    if failures:
        raise failures[0]
    return results


def outcomes(size, body, deadline=DEADLINE):
    """Like on_threads, but an exception is a rank's result."""

    def rank(comm):
        try:
            return body(comm)
        except Exception as error:
            return error

    return on_threads(size, rank, deadline)


def on_processes(size, script, *arguments, seconds=60, environment=None):
    """Runs the script on `size` workers; returns exit code and output."""
    tool = os.environ["TEST_TOOL"]
    command = [tool, "run", "-n", str(size), "--timeout", str(seconds), "--", sys.executable, "-B", script, *arguments]
    return run(command, seconds + 10, environment)


def without_launcher(size, script, *arguments, seconds=60, environment=None):
    """The same without a launcher that would end the others when one fails: each rank's exit code and output."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [start([sys.executable, "-B", script, *arguments],
                       {"GRADSYNC_RANK": str(rank), "GRADSYNC_SIZE": str(size),
                        "GRADSYNC_RENDEZVOUS": f"file://{folder}/meeting", **(environment or {})}) for rank in range(size)]
        return [finish(process, seconds) for process in ranks]


def run(command, seconds, environment=None):
    return finish(start(command, environment), seconds)


def start(command, environment):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, start_new_session=True, env={**os.environ, **(environment or {})})


def finish(process, seconds):
    """Exit code and output. Ends it and all that it started if it takes longer."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"{process.args} ran longer than {seconds} s:\n{output}") from None
    return process.returncode, output
