"""What the ranks of processes_test.py and exits_test.py do: worker.py NAME."""
import array
import os
import signal
import sys
import threading

import gradsync


def say(text):
    print(text, flush=True)


def collectives():
    """Every collective once, and an average whose value everyone knows."""
    with gradsync.create(timeout=30) as comm:
        n, me = comm.size, comm.rank
        x = array.array("d", [me] * 1000)
        comm.all_reduce(x, "avg")
        assert x[999] == (n - 1) / 2, x[999]
        blocks, block = array.array("i", [me] * 2 * n), array.array("i", [0, 0])
        comm.reduce_scatter(blocks, block, "max")
        assert list(block) == [n - 1] * 2
        whole = array.array("i", [0] * n)
        comm.all_gather(array.array("i", [me]), whole)
        assert list(whole) == list(range(n))
        comm.gather(array.array("i", [me]), whole if me == n - 1 else None, root=n - 1)
        comm.scatter(whole if me == n - 1 else None, memoryview(block)[:1], root=n - 1)
        assert block[0] == me
        comm.broadcast(block, root=n - 1)
        assert block[0] == n - 1
        comm.reduce(block, root=0)
        out = array.array("i", [0] * n)
        comm.all_to_all(array.array("i", range(n)), out)
        assert list(out) == [me] * n
        if n > 1:
            sending = comm.isend(array.array("i", [me]), (me + 1) % n, tag=9)
            assert comm.recv(memoryview(block)[:1], tag=9) == block[0] == (me - 1) % n
            sending.wait()
        comm.barrier()
        say(f"ok {me} of {n}")


def wait_quietly(work):
    try:
        work.wait()
    except gradsync.Error:
        pass  # the end of the process is the end of the call


def leave_with_work():
    """The end of the program finds calls under way that can never end well."""
    comm = gradsync.create(timeout=300)
    kept = [comm.irecv(bytearray(1000), source=1 - comm.rank, tag=7) for _ in range(10)]
    dropped = comm.irecv(bytearray(1000), source=1 - comm.rank, tag=8)
    del dropped
    threading.Thread(target=wait_quietly, args=(kept[0],), daemon=True).start()
    if comm.rank == 0:
        comm.barrier(async_op=True)
    say(f"leaving {comm.rank}")


def leave_by_exception():
    comm = gradsync.create(timeout=300)
    comm.barrier()
    if comm.rank == 0:
        raise KeyError("rank 0 has no data")
    try:
        comm.all_reduce(array.array("i", [1]))
    except gradsync.Error as error:
        say(f"rank {comm.rank} heard {type(error).__name__} of peer {error.peer}")
        sys.exit(3)


def killed():
    comm = gradsync.create(timeout=60)
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            comm.all_reduce(array.array("i", [1]))
    except gradsync.PeerLostError as error:
        say(f"rank {comm.rank} lost peer {error.peer}")


def killed_while_a_child_lives():
    """Rank 1 dies, but not its child, which lives until rank 0 has ended."""
    lifeline = os.environ["GRADSYNC_RENDEZVOUS"][len("file://"):] + "-lifeline"
    comm = gradsync.create(timeout=60)
    if comm.rank == 0:
        os.mkfifo(lifeline)
        held = os.open(lifeline, os.O_RDWR)
    comm.barrier()
    comm.all_reduce(array.array("i", [1]))
    if comm.rank == 1:
        if os.fork() == 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            with open(lifeline) as end:
                end.read()
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.all_reduce(array.array("i", [1]))
    except gradsync.Error as error:
        say(f"rank {comm.rank} heard {type(error).__name__} of peer {error.peer}")
    finally:
        os.close(held)


def forked():
    """A child has no part in the group of its parent, and harms nobody when it goes."""
    comm = gradsync.create(timeout=60)
    x = array.array("i", [1])
    child = os.fork()
    if child == 0:
        try:
            comm.all_reduce(x)
        except gradsync.ClosedError as error:
            say(f"child of {comm.rank}: {error}")
        own = gradsync.threads(1)[0]
        own.all_reduce(x)
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    comm.all_reduce(x)
    say(f"sum {x[0]}")


globals()[sys.argv[1]]()
