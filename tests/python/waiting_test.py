"""Waits leave the interpreter free, and signals interrupt them. Nothing here measures time."""
import array
import os
import signal
import sys
import threading
import time
import unittest

import gradsync
from support import DEADLINE, on_threads


class Interpreter(unittest.TestCase):
    def test_other_threads_go_on_while_one_waits(self):
        """The message that ends the wait is only sent once this thread has done work that needs the lock."""

        def body(comm):
            if comm.rank == 0:
                comm.recv(bytearray(1), source=1)
                return
            for _ in range(3):  # rank 0 waits meanwhile; Python code runs here all the same
                counted = sum(i % 3 for i in range(100_000))
            self.assertEqual(counted, 99_999)
            comm.send(b"x", dest=0)

        on_threads(2, body)

    def test_a_wait_holds_no_lock_while_it_is_inside_the_library(self):
        """With the interpreter told never to switch by itself, only a released lock lets the other thread send."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(10 * DEADLINE)
        try:
            on_threads(2, lambda comm: comm.recv(bytearray(1), 1) if comm.rank == 0 else comm.send(b"x", 0))
        finally:
            sys.setswitchinterval(interval)


class Alarm(Exception):
    pass


def rise(_number, _frame):
    raise Alarm


def inside_package(thread):
    """Whether the thread is in a function of gradsync just now."""
    frame = sys._current_frames().get(thread.ident)
    while frame is not None:
        if os.path.dirname(frame.f_code.co_filename).endswith("gradsync"):
            return True
        frame = frame.f_back
    return False


class Signals(unittest.TestCase):
    """The signal is sent by another thread once it sees the main one inside the package."""

    def interrupted(self, wait):
        ended = threading.Event()

        def send():
            until = time.monotonic() + DEADLINE
            while not inside_package(threading.main_thread()) and time.monotonic() < until:
                if ended.wait(0.001):
                    return
            os.kill(os.getpid(), signal.SIGUSR1)

        previous = signal.signal(signal.SIGUSR1, rise)
        sender = threading.Thread(target=send)
        try:
            with self.assertRaises(Alarm):
                sender.start()
                wait()
        finally:
            ended.set()
            sender.join()
            signal.signal(signal.SIGUSR1, previous)

    def test_a_wait_is_interrupted_and_can_be_taken_up_again(self):
        first, second = gradsync.threads(2, timeout=DEADLINE)
        x = bytearray(1)
        work = first.irecv(x, source=1)
        self.interrupted(work.wait)
        self.assertFalse(work.done())
        second.send(b"y", dest=0)
        work.wait()
        self.assertEqual(x, b"y")

    def test_an_interrupted_blocking_call_ends_the_communicator(self):
        first, second = gradsync.threads(2, timeout=DEADLINE)
        self.interrupted(lambda: first.all_reduce(array.array("i", [1])))
        for comm in (first, second):
            with self.assertRaisesRegex(gradsync.AbortedError, "Alarm in a blocking call"):
                comm.recv(bytearray(1), source=1 - comm.rank)

    def test_joining_and_splitting_are_interrupted(self):
        nobody = f"unix-abstract://gradsync-waiting-test-{os.getpid()}/job"  # rank 0 would serve it
        self.interrupted(lambda: gradsync.create(rank=1, size=2, rendezvous=nobody, start_timeout=2))
        first, second = gradsync.threads(2, timeout=DEADLINE)
        self.interrupted(lambda: first.split(0))
        with self.assertRaises(gradsync.AbortedError):
            second.recv(bytearray(1), source=0)


class Works(unittest.TestCase):
    def test_a_wait_of_limited_time_leaves_the_call_under_way(self):
        first, second = gradsync.threads(2, timeout=DEADLINE)
        x = bytearray(1)
        work = first.irecv(x, source=1, tag=3)
        with self.assertRaisesRegex(gradsync.TimeoutError, "it goes on"):
            work.wait(timeout=0.01)
        self.assertIsNone(work.exception())
        self.assertEqual((work.done(), work.source, work.completed_at), (False, None, None))
        self.assertIn("under way", repr(work))
        second.send(b"z", dest=0, tag=3)
        work.wait(timeout=DEADLINE)
        self.assertEqual((work.done(), work.is_completed(), work.source), (True, True, 1))
        self.assertGreater(work.completed_at, 0)
        self.assertEqual(work.sequence, 1)
        self.assertIn("done", repr(work))

    def test_buffers_of_a_dropped_work_live_until_it_is_done(self):
        def body(comm):
            for _ in range(20):
                for turn in range(100):
                    x = array.array("q", [turn] * 1000)
                    comm.all_reduce(x, async_op=True)
                    del x
                last = array.array("q", [1])
                comm.all_reduce(last)
                self.assertEqual(last[0], 2)
            self.assertLess(len(comm._handle.under_way), 500)  # of 2000: those that are done do not pile up

        on_threads(2, body)

    def test_several_threads_may_wait_for_one_work(self):
        first, second = gradsync.threads(2, timeout=DEADLINE)
        work = first.irecv(bytearray(1), source=1)
        waiters = [threading.Thread(target=work.wait, daemon=True) for _ in range(4)]
        for waiter in waiters:
            waiter.start()
        second.send(b"w", dest=0)
        for waiter in waiters:
            waiter.join(DEADLINE)
        self.assertFalse(any(waiter.is_alive() for waiter in waiters))
        work.wait()


if __name__ == "__main__":
    unittest.main()
