#!/usr/bin/env python3
"""How groups end: with work under way, after an exception, by a signal, in a forked child, and what is said about tensors elsewhere.
Programs run as a user's would, in interpreters of their own, and must end by themselves."""
import datetime
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import torch
import torch.distributed as dist

import gradsync
import gradsync.torch
import ranks

SECONDS = 60
PRELUDE = """
import datetime, os, signal, sys
import torch, torch.distributed as dist
import gradsync.torch
rank, world, meeting = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gradsync", init_method="file://" + meeting, rank=rank, world_size=world,
                        timeout=datetime.timedelta(seconds=20))
dist.barrier()
"""


def programs(body, world=2):
    """(exit code, standard output, standard error) of each rank."""
    with tempfile.TemporaryDirectory(prefix="gradsync-c10d-") as folder:
        started = [subprocess.Popen([sys.executable, "-c", PRELUDE + body, str(rank), str(world), folder + "/meeting"],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(world)]
        try:
            ended = [process.communicate(timeout=SECONDS) for process in started]
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
        return [(process.returncode, *texts) for process, texts in zip(started, ended)]


class Ends(unittest.TestCase):
    def expect(self, body, world=2, codes=None):
        results = programs(body, world)
        self.assertEqual([code for code, _, _ in results], codes or [0] * world, results)
        return results

    def test_with_work_under_way(self):
        """No rank waits, one does not even take part; nobody destroys the group."""
        for _, out, _ in self.expect("""
works = [dist.all_reduce(torch.ones(100_000), async_op=True) for _ in range(20)] if rank == 0 else []
received = dist.irecv(torch.zeros(3), 1 - rank, tag=5)
print("end")
"""):
            self.assertEqual(out, "end\n")

    def test_with_callbacks_that_have_not_run(self):
        self.expect("""
def callback(future):
    sys.stderr.write("")
    return future.value()
futures = [dist.all_reduce(torch.ones(10), async_op=True).get_future().then(callback) for _ in range(10)] if rank == 0 else []
futures.append(dist.irecv(torch.zeros(3), 1 - rank, tag=5).get_future().then(callback))
""")

    def test_by_destroying_with_work_under_way(self):
        self.expect("""
work = dist.all_reduce(torch.ones(10), async_op=True) if rank == 0 else None
sparse = dist.all_reduce(torch.sparse_coo_tensor([[1]], [1.0], (3,)), async_op=True) if rank == 0 else None
import time
began = time.monotonic()
dist.destroy_process_group()
for each in filter(None, (work, sparse)):
    try:
        each.wait()
        sys.exit("nothing was raised")
    except RuntimeError as error:
        print(error)
if time.monotonic() - began > 10:
    sys.exit("it waited for the deadline")
""")

    def test_by_forgetting_the_group_while_callbacks_wait(self):
        """The last reference goes with the interpreter's lock held, which the callbacks want."""
        for _, out, _ in self.expect("""
import time
store = dist.FileStore(meeting + "-too", world)
group = gradsync.torch._groups.create(store, rank, world, datetime.timedelta(seconds=20))
futures = [group.recv([torch.zeros(1)], 1 - rank, tag).get_future().then(lambda f: f.value()) for tag in range(5)]
if rank == 0:
    futures += [group.allreduce([torch.zeros(1)]).get_future().then(lambda f: f.value()) for _ in range(5)]
began = time.monotonic()
del group
for future in futures:
    try:
        future.wait()
        sys.exit("nothing was raised")
    except RuntimeError as error:
        pass
print(time.monotonic() - began < 10)
"""):
            self.assertEqual(out, "True\n")

    def test_by_an_exception_on_one_rank(self):
        """It ends with its traceback; the other hears of it, and ends with its own."""
        results = self.expect("""
if rank == 1:
    raise ValueError("on purpose")
try:
    dist.all_reduce(torch.ones(4))
except RuntimeError as error:
    print(error)
    raise
""", codes=[1, 1])
        self.assertIn("rank 1", results[0][1])
        self.assertIn("ValueError: on purpose", results[1][2])

    def test_by_a_signal_on_one_rank(self):
        results = self.expect("""
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    dist.all_reduce(torch.ones(4))
    sys.exit("nothing was raised")
except RuntimeError as error:
    print(error)
""", codes=[0, -signal.SIGKILL])
        self.assertIn("rank 1", results[0][1])

    def test_by_a_signal_while_a_worker_of_the_data_loader_lives(self):
        """It holds copies of what the killed rank had open, and lives until rank 0 has ended."""
        results = self.expect("""
lifeline = meeting + "-lifeline"
class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, i):
        if i == 1:
            open(lifeline).read()
        return i
if rank == 0:
    os.mkfifo(lifeline)
    held = os.open(lifeline, os.O_RDWR)
dist.barrier()
if rank == 1:
    samples = iter(torch.utils.data.DataLoader(Samples(), num_workers=1))  # its end would be that of the worker
    next(samples)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    dist.all_reduce(torch.ones(4))
    sys.exit("nothing was raised")
except RuntimeError as error:
    print(error)
os.close(held)
""", codes=[0, -signal.SIGKILL])
        self.assertIn("rank 1", results[0][1])
        self.assertNotIn("timeout", results[0][1])

    def test_while_a_model_still_holds_the_group(self):
        """PyTorch's wrapper of a model keeps the group alive; destroy_process_group ends it all the same."""
        for _, out, _ in self.expect("""
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
group = dist.group.WORLD
net(torch.ones(1, 2)).sum().backward()
dist.destroy_process_group()
for call in (lambda: group.allreduce([torch.ones(1)]).wait(), lambda: group.barrier().wait(),
             lambda: group.send([torch.ones(1)], 1 - rank, 0).wait(), lambda: gradsync.torch.empty(3, group=group),
             lambda: dist.monitored_barrier(), lambda: dist.all_reduce(torch.ones(1))):
    try:
        call()
        sys.exit("nothing was raised")
    except (RuntimeError, ValueError) as error:  # the latter where PyTorch 2 looks for the group by itself
        print(error)
"""):
            lines = [line for line in out.splitlines() if line]
            self.assertEqual(sum("was destroyed" in line for line in lines), 4, out)
            self.assertIn("initialize", lines[-1])

    def test_with_a_mismatch_that_no_call_has_found(self):
        """Each is the root and has sent. If the other's message comes after its call has ended, the end of the group tells."""
        for ending in ("dist.destroy_process_group()", ""):
            with self.subTest(ending or "the end of the program"):
                results = self.expect("""
store = torch.distributed.distributed_c10d._get_default_store()
try:
    dist.broadcast(torch.ones(8), rank)
except RuntimeError as error:  # it was there before
    sys.stderr.write(str(error))
store.set(f"called {rank}", "")
store.wait([f"called {1 - rank}"])
""" + ending)
                for _, _, error in results:
                    for words in ("broadcast", "root 0", "root 1", "gradsync rank"):
                        self.assertIn(words, error)
                    self.assertEqual(error.count("gradsync rank"), 1, error)
                self.assertIn("RuntimeWarning", results[0][2] + results[1][2])

    def test_again_and_again(self):
        """Threads, descriptors and memory maps do not grow with the groups that were."""
        for _, out, _ in self.expect("""
def held():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), len(open("/proc/self/maps").readlines())
for i in range(30):
    group = dist.new_group()
    dist.all_reduce(torch.ones(5), group=group, async_op=True).get_future().wait()
    dist.all_reduce(torch.sparse_coo_tensor([[1]], [1.0], (3,)), group=group)
    dist.destroy_process_group(group)
    dist.barrier()
    if i == 9:
        warm = held()
threads, descriptors, maps = (a - b for a, b in zip(held(), warm))
print(threads, descriptors, maps < 20)
"""):
            self.assertEqual(out, "0 0 True\n")

    def test_a_forked_child_is_refused_and_harms_nobody(self):
        for _, out, _ in self.expect("""
work = dist.all_reduce(torch.ones(5), async_op=True)
future = work.get_future()
child = os.fork()
if child == 0:
    for call in (lambda: dist.all_reduce(torch.ones(1)), lambda: work.wait(), lambda: dist.monitored_barrier()):
        try:
            call()
            sys.exit(3)
        except RuntimeError as error:
            if "forked child" not in str(error) or str(error).count("gradsync rank") != 1:
                sys.exit(str(error))
    dist.destroy_process_group()
    sys.exit(0)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status))
future.wait()
tensor = torch.ones(1)
dist.all_reduce(tensor)
print(tensor.item())
dist.destroy_process_group()
"""):
            self.assertEqual(out, "child 0\n2.0\n")

    def test_without_a_timeout_of_the_program(self):
        """Each library's own default, where torch.distributed is not asked for one."""
        for _, out, _ in self.expect("""
import gradsync.torch.rendezvous as rendezvous
os.environ.pop("GRADSYNC_RANK", None)
store, mine, size = next(rendezvous._meet("gradsync://"))
store.set("key", "value")
print(mine, size, store.get("key"), store.timeout)
""", world=1):
            self.assertEqual(out, "0 1 b'value' 0:05:00\n")

    def test_tensors_on_another_device(self):
        """Refused by name, and the group goes on."""
        for _, out, _ in self.expect("""
with torch.inference_mode():  # otherwise PyTorch refuses the device itself, with 200 lines
    there = torch.ones(3, device="meta")
here = torch.ones(3)
for call in (lambda: dist.all_reduce(there), lambda: dist.broadcast(there, 0), lambda: dist.all_gather([there] * 2, here),
             lambda: dist.reduce_scatter(here, [there] * 2), lambda: dist.send(there, 1 - rank)):
    try:
        call()
        sys.exit("nothing was raised")
    except RuntimeError as error:
        print(str(error).splitlines()[0])
dist.all_reduce(here)
assert here.tolist() == [2, 2, 2]
"""):
            lines = out.splitlines()
            self.assertEqual(len(lines), 5, out)
            for line in lines:
                if torch.__version__ < "2":
                    self.assertIn("float32 [3] is on meta, gradsync supports tensors on cpu", line)
                else:  # whose dispatcher has a word of its own for this device
                    self.assertRegex(line, "float32 \\[3\\] is on meta, gradsync supports tensors on cpu|with Meta tensors")

    def test_shapes_that_cannot_be(self):
        for _, out, _ in self.expect("""
for call in (lambda: dist.all_gather([torch.ones(3)] * 2, torch.ones(4)), lambda: dist.all_gather([torch.ones(3)], torch.ones(3)),
             lambda: dist.all_gather_into_tensor(torch.ones(5), torch.ones(3)), lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(3)),
             lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3)), lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3), [1, 1], [2, 1]),
             lambda: dist.group.WORLD.allreduce([torch.ones(1), torch.ones(1)]), lambda: dist.group.WORLD.broadcast([], 0)):
    try:
        call()
        sys.exit("nothing was raised")
    except RuntimeError as error:
        print(error)
    except TypeError:
        print("TypeError")
tensor = torch.ones(1)
dist.all_reduce(tensor)
assert tensor.item() == 2
"""):
            for line, words in zip(out.splitlines(), (
                    "float32 [3] and float32 [4]", "expected one for each of 2 ranks", "expected 6", "expected 4",
                    "3 rows, which cannot be split among 2 ranks", "output splits are [1, 1]", "2 input tensors, expected 1")):
                self.assertIn(words, line)

    def test_abort_ends_it_everywhere(self):
        results = self.expect("""
if rank == 0:
    gradsync.torch.abort("the loss is not finite")
try:
    dist.all_reduce(torch.ones(4))
    sys.exit("nothing was raised")
except RuntimeError as error:
    print(error)
""")
        for _, out, _ in results:
            self.assertIn("the loss is not finite", out)

    def test_detailed_debugging_works(self):
        """TORCH_DISTRIBUTED_DEBUG=DETAIL wraps PyTorch's own backends; ours runs as it is, or wrapped in 2.x."""
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        try:
            self.expect("""
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
net(torch.ones(1, 2)).sum().backward()
dist.barrier()
dist.destroy_process_group()
""")
        finally:
            del os.environ["TORCH_DISTRIBUTED_DEBUG"]


class Versions(unittest.TestCase):
    def test_ranks_with_different_versions_of_the_library_are_told(self):
        """What rank 0 says when it enters is given to rank 1 with another version in it."""
        with tempfile.TemporaryDirectory(prefix="gradsync-c10d-") as folder:
            groups, seconds = gradsync.torch._groups, datetime.timedelta(seconds=2)
            alone = threading.Thread(target=ranks.raised, args=(groups.create, dist.FileStore(folder + "/a", 2), 0, 2, seconds))
            alone.start()
            said = dist.FileStore(folder + "/a", 2).get("gradsync/first")
            self.assertIn(gradsync.__version__.encode(), said)
            other = dist.FileStore(folder + "/b", 2)
            other.set("gradsync/first", said.replace(gradsync.__version__.encode(), b"9.8.7"))
            other.add("gradsync/entered", 1)
            text = ranks.raised(groups.create, dist.FileStore(folder + "/b", 2), 1, 2, seconds)
            self.assertIn(f"rank 1 has gradsync {gradsync.__version__}, rank 0 has gradsync 9.8.7", text)
            alone.join(20)
            self.assertFalse(alone.is_alive())


if __name__ == "__main__":
    unittest.main()
