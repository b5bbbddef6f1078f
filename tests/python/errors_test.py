"""Failures are exceptions of a class of their own, on every rank, and name the cause."""
import array
import builtins
import pickle
import traceback
import unittest

import gradsync
from support import on_threads, outcomes


class Classes(unittest.TestCase):
    def test_they_fit_those_of_python(self):
        for ours, theirs in ((gradsync.TimeoutError, builtins.TimeoutError), (gradsync.PeerLostError, ConnectionError),
                             (gradsync.InvalidArgumentError, ValueError), (gradsync.OutOfMemoryError, MemoryError),
                             (gradsync.UnavailableError, OSError), (gradsync.UnsupportedError, NotImplementedError)):
            self.assertTrue(issubclass(ours, theirs) and issubclass(ours, gradsync.Error), ours)

    def test_they_survive_pickling(self):
        error = pickle.loads(pickle.dumps(gradsync.PeerLostError("rank 2 is gone", 2)))
        self.assertEqual((type(error), str(error), error.peer, error.code),
                         (gradsync.PeerLostError, "rank 2 is gone", 2, "peer_lost"))


    def test_they_go_by_the_name_that_is_imported(self):
        for name in gradsync.__all__:
            public = getattr(gradsync, name)
            if isinstance(public, type):
                self.assertEqual(f"{public.__module__}.{public.__qualname__}", f"gradsync.{name}")
                self.assertIs(pickle.loads(pickle.dumps(public)), public)
        self.assertEqual(traceback.format_exception_only(gradsync.MismatchError, gradsync.MismatchError("why")),
                         ["gradsync.MismatchError: why\n"])


class Mismatches(unittest.TestCase):
    def check(self, body, *words):
        for error in outcomes(2, body):
            self.assertIsInstance(error, gradsync.MismatchError)
            for word in words:
                self.assertIn(word, str(error))

    def test_counts(self):
        for counts in ((262144, 1025), (100, 101)):
            self.check(lambda comm: comm.all_reduce(array.array("f", [1.0] * counts[comm.rank])), *map(str, counts))

    def test_element_types(self):
        self.check(lambda comm: comm.all_reduce(array.array("fi"[comm.rank], [1, 2])), "f32", "i32")

    def test_operators(self):
        self.check(lambda comm: comm.all_reduce(array.array("i", [1, 2]), op=("sum", "max")[comm.rank]), "sum", "max")

    def test_roots(self):
        def body(comm):
            comm.broadcast(array.array("i", [1, 2]), root=comm.rank)  # either only sends, and hears of it a call later
            comm.barrier()

        self.check(body, "root")

    def test_collectives(self):
        def body(comm):
            if comm.rank == 0:
                comm.all_reduce(array.array("i", [1]))
            else:
                comm.barrier()

        self.check(body, "all_reduce", "barrier")


class Endings(unittest.TestCase):
    def test_a_deadline_names_whom_it_waited_for(self):
        def body(comm):
            if comm.rank == 0:
                comm.recv(bytearray(1), source=1, timeout=0.05)
            else:
                with self.assertRaises(gradsync.Error):
                    comm.recv(bytearray(1), source=0)

        error = outcomes(2, body)[0]
        self.assertIsInstance(error, gradsync.TimeoutError)
        self.assertEqual(error.peer, 1)
        self.assertIn("rank 1", str(error))

    def test_abort_ends_everybody_with_the_reason(self):
        def body(comm):
            if comm.rank == 2:
                comm.abort("no data left")
            comm.barrier()

        for error in outcomes(3, body):
            self.assertIsInstance(error, gradsync.AbortedError)
            self.assertIn("no data left", str(error))

    def test_an_exception_in_a_with_block_reaches_the_peers(self):
        def body(comm):
            if comm.rank == 0:
                with comm:
                    raise KeyError("lost page")
            comm.barrier()

        first, second = outcomes(2, body)
        self.assertIsInstance(first, KeyError)
        self.assertIsInstance(second, gradsync.AbortedError)
        self.assertIn("KeyError: 'lost page'", str(second))
        self.assertEqual(second.peer, 0)

    def test_a_destroyed_communicator_is_closed(self):
        comm = gradsync.threads(1)[0]
        comm.destroy()
        comm.destroy()
        self.assertEqual((comm.rank, comm.size), (0, 1))
        for use in (comm.barrier, comm.counters, comm.check, lambda: comm.hosts, comm.abort, lambda: comm.split(0),
                    lambda: comm.describe(0), lambda: comm.group([0]), comm.tune,
                    lambda: comm.all_reduce(array.array("i", [1]))):
            with self.assertRaisesRegex(gradsync.ClosedError, "destroyed"):
                use()
        self.assertIn("destroyed", repr(comm))

    def test_destroy_ends_what_is_under_way(self):
        first, second = gradsync.threads(2)
        work = first.irecv(bytearray(3), source=1)
        first.destroy()
        with self.assertRaises(gradsync.ClosedError):
            work.wait()
        self.assertIsInstance(work.exception(), gradsync.ClosedError)
        second.destroy()


class Arguments(unittest.TestCase):
    def setUp(self):
        self.comm = gradsync.threads(1)[0]
        self.x = array.array("i", [1])

    def refused(self, words, call, kind=gradsync.InvalidArgumentError):
        with self.assertRaisesRegex(kind, words):
            call()
        self.comm.check()

    def test_what_cannot_be_right(self):
        comm, x = self.comm, self.x
        self.refused("'mean' is unknown, known are sum, avg", lambda: comm.all_reduce(x, "mean"))
        self.refused("op is 7.5", lambda: comm.all_reduce(x, 7.5), TypeError)
        self.refused("'bubble' is unknown, known are auto", lambda: comm.all_reduce(x, algorithm="bubble"))
        self.refused("timeout is 0 s", lambda: comm.all_reduce(x, timeout=0))
        self.refused("timeout is -1 s", lambda: comm.barrier(timeout=-1))
        self.refused("root is rank 1", lambda: comm.broadcast(x, root=1))
        self.refused("counts are", lambda: comm.all_gather(x, x, counts=[-1]))
        self.refused("2 counts were given for 1 ranks", lambda: comm.all_gather(x, x, counts=[1, 1]))
        self.refused("given together", lambda: comm.all_to_all(x, x, send_counts=[1]))
        self.refused("1 send counts and 2 receive", lambda: comm.all_to_all(x, x, [1], [1, 1]))
        self.refused("the tag is -1", lambda: comm.send(x, 0, tag=-1))
        self.refused("peer is rank 0 itself", lambda: comm.send(x, 0))
        self.refused("rank 5 of 1", lambda: comm.describe(5))
        self.refused("not listed", lambda: comm.group([]))
        self.refused("outside of the world", lambda: comm.group([0, 7]))
        self.refused("a world of 0 threads", lambda: gradsync.threads(0))
        self.refused("'pigeon' is unknown", lambda: gradsync.create(transport="pigeon"))
        self.refused("timeout is -2 s", lambda: gradsync.create(timeout=-2))
        floats = array.array("f", [1])
        self.refused("bit_and of f32", lambda: comm.all_reduce(floats, "band"), gradsync.UnsupportedError)


class Parts(unittest.TestCase):
    def test_split_and_group_are_communicators_of_their_own(self):
        def body(comm):
            part = comm.split(-1 if comm.rank == 1 else 4, key=-comm.rank)
            self.assertEqual(part is None, comm.rank == 1)
            if part is None:
                return
            with part:
                self.assertEqual((part.rank, part.size), ((1, 2) if comm.rank == 0 else (0, 2)))
                x = array.array("i", [comm.rank])
                part.all_reduce(x)
                self.assertEqual(x[0], 2)
            with comm.group([2, 0]) as pair:
                self.assertEqual(pair.rank, 0 if comm.rank == 2 else 1)
                pair.barrier()

        on_threads(3, body)

    def test_what_a_communicator_says_of_itself(self):
        def body(comm):
            self.assertEqual(comm.hosts, [0, 0])
            self.assertIn("rank 1", comm.describe(1))
            comm.tune()
            comm.all_reduce(array.array("d", [1] * 100), algorithm="two_shot")
            counted = comm.counters()
            self.assertGreater(counted.operations, 0)
            self.assertGreater(counted.bytes_sent, 0)
            self.assertEqual(repr(comm), f"<gradsync.Communicator: rank {comm.rank} of 2>")

        on_threads(2, body)


if __name__ == "__main__":
    unittest.main()
