"""Ranks that are processes, started by `gradsync run`, by torchrun and by mpirun."""
import os
import shutil
import signal
import sys
import tempfile
import unittest

from support import on_processes, run, without_launcher

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")


class Launchers(unittest.TestCase):
    def everyone(self, result, size):
        code, output = result
        self.assertEqual(code, 0, output)
        for rank in range(size):
            self.assertIn(f"ok {rank} of {size}", output)

    def test_gradsync_run(self):
        for size in (1, 2, 4):
            self.everyone(on_processes(size, WORKER, "collectives"), size)

    def test_over_tcp(self):
        self.everyone(on_processes(3, WORKER, "collectives", environment={"GRADSYNC_OPTIONS": "transport=tcp"}), 3)

    def test_by_hand(self):
        self.everyone(run([sys.executable, "-B", WORKER, "collectives"], 60), 1)

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "no Open MPI")
    def test_mpirun_of_open_mpi(self):
        # The daemon would spread over hosts; here it may run as root and with more ranks than cores.
        command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable, "-B", WORKER]
        self.everyone(run([*command, "collectives"], 60, {"OMPI_MCA_btl_tcp_if_include": "lo"}), 3)

    @unittest.skipUnless(shutil.which("mpirun.mpich"), "no MPICH")
    def test_mpirun_of_mpich(self):
        self.everyone(run(["mpirun.mpich", "-n", "3", sys.executable, "-B", WORKER, "collectives"], 60), 3)

    def test_torchrun(self):
        try:
            import torch.distributed.run  # noqa: F401
        except ImportError:
            self.skipTest("no torchrun")
        with tempfile.TemporaryDirectory() as logs:
            # The torchrun of 1.13 fails under Python 3.11 unless output goes through a file.
            own = ["--standalone", "--nproc_per_node=2", "--redirects=1", "--tee=1", f"--log_dir={logs}"]
            command = [sys.executable, "-B", "-m", "torch.distributed.run", *own, WORKER]
            self.everyone(run([*command, "collectives"], 100), 2)


class Failures(unittest.TestCase):
    def test_a_killed_rank_is_lost_to_the_others(self):
        results = without_launcher(3, WORKER, "killed")
        self.assertEqual([code for code, _ in results], [0, -signal.SIGKILL, 0], results)
        self.assertIn("rank 0 lost peer 1", results[0][1])
        self.assertIn("rank 2 lost peer 1", results[2][1])

    def test_a_killed_rank_is_lost_although_a_forked_child_of_it_lives(self):
        for transport in ("shm", "tcp"):
            with self.subTest(transport):
                results = without_launcher(2, WORKER, "killed_while_a_child_lives", environment={"GRADSYNC_OPTIONS": f"transport={transport}"})
                self.assertEqual([code for code, _ in results], [0, -signal.SIGKILL], results)
                self.assertIn("rank 0 heard PeerLostError of peer 1", results[0][1])

    def test_a_forked_child_is_told_so_and_harms_nobody(self):
        code, output = on_processes(2, WORKER, "forked")
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("sum 2"), 2, output)
        for rank in range(2):
            self.assertIn(f"child of {rank}: ", output)
        self.assertIn("is of the parent process", output)


class Exits(unittest.TestCase):
    def test_with_work_under_way(self):
        code, output = on_processes(2, WORKER, "leave_with_work", seconds=30)
        self.assertEqual(code, 0, output)
        self.assertIn("leaving 0", output)
        self.assertIn("leaving 1", output)
        self.assertNotIn("Traceback", output)

    def test_after_an_exception_on_one_rank(self):
        first, second = without_launcher(2, WORKER, "leave_by_exception")
        self.assertEqual((first[0], second[0]), (1, 3), (first, second))
        self.assertIn("rank 0 has no data", first[1])
        self.assertIn("rank 1 heard PeerLostError of peer 0", second[1])


if __name__ == "__main__":
    unittest.main()
