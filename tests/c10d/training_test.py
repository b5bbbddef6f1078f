"""DistributedDataParallel over gradsync trains what it trains over Gloo.

With two ranks a sum has one order: every loss, gradient and parameter must be equal to the bit. With three the backends may add in
different orders: then the gradients of the first step, for which both had the same parameters, are compared with the bound of
floating-point summation, and replicas must be equal to the bit among themselves.
"""

import os
import subprocess
import sys
import tempfile
import unittest

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 240


def run(backend, world, folder):
    """-> [what each rank's scenarios returned]"""
    outs = [os.path.join(folder, f"{backend}-{world}-{rank}") for rank in range(world)]
    meeting = "file://" + os.path.join(folder, f"meeting-{backend}-{world}")
    environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    workers = [subprocess.Popen([sys.executable, os.path.join(HERE, "training_worker.py"), backend, str(rank), str(world), meeting, out],
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for rank, out in enumerate(outs)]
    try:
        for rank, worker in enumerate(workers):
            said, _ = worker.communicate(timeout=LIMIT_S)
            if worker.returncode != 0:
                raise AssertionError(f"{backend}, rank {rank} of {world} ended with {worker.returncode}:\n{said[-3000:]}")
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
    return [torch.load(out) for out in outs]


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.seen = {}
        with tempfile.TemporaryDirectory(prefix="gradsync-training-") as folder:
            for world in (2, 3):
                for backend in ("gloo", "gradsync"):
                    cls.seen[(backend, world)] = run(backend, world, folder)

    def test_two_ranks_equal_gloo_to_the_bit(self):
        for rank in range(2):
            gloo, ours = self.seen[("gloo", 2)][rank], self.seen[("gradsync", 2)][rank]
            self.assertEqual(gloo.keys(), ours.keys())
            for scenario in gloo:
                with self.subTest(scenario=scenario, rank=rank):
                    self.assertEqual(gloo[scenario].keys(), ours[scenario].keys())
                    self.assertGreater(len(gloo[scenario]), 3)
                    for name, value in gloo[scenario].items():
                        self.assertTrue(torch.equal(value, ours[scenario][name]), name)

    def test_replicas_are_equal_to_the_bit(self):
        for (backend, world), ranks in self.seen.items():
            for scenario, of_first in ranks[0].items():
                for rank in range(1, world):
                    for name in (name for name in of_first if name.startswith("end ")):
                        if "running_" in name or "num_batches" in name:
                            continue  # each rank's own since the last forward, by DistributedDataParallel's design
                        with self.subTest(backend=backend, scenario=scenario, rank=rank, name=name):
                            self.assertTrue(torch.equal(of_first[name], ranks[rank][scenario][name]))

    def test_three_ranks_differ_from_gloo_by_rounding_only(self):
        # DistributedDataParallel divides each rank's gradient by three, alike over both backends, then three terms are added. Each
        # addition errs by at most eps / 2 of a partial sum, which is at most the sum of the terms' largest magnitudes; two
        # additions, two orders: 2 eps of it. Another memory format changes the magnitudes by far less than the 2^-10 allowed.
        for scenario in ("plain_mlp", "convolutions", "channels_last", "doubles", "gradients_as_views"):
            gloo, ours = self.seen[("gloo", 3)][0][scenario], self.seen[("gradsync", 3)][0][scenario]
            for name in (name for name in gloo if name.startswith("gradient 0 ")):
                with self.subTest(scenario=scenario, name=name):
                    eps = torch.finfo(gloo[name].dtype).eps
                    self.assertTrue(torch.isfinite(ours[name]).all())
                    magnitude = self.largest_term(scenario, name)
                    self.assertLessEqual((gloo[name] - ours[name]).abs().max().item(), 2 * eps * magnitude * (1 + 2**-10))

    def largest_term(self, scenario, name):
        """The sum over the ranks of the largest |gradient / 3| of each."""
        return sum(local.abs().max().item() / 3 for local in local_gradients(scenario, name, 3))


def local_gradients(scenario, name, world):
    """The first step's gradients of each rank by itself, without a process group."""
    import training_scenarios as scenarios
    from torch import nn

    model = scenarios.cnn if scenario in ("convolutions", "channels_last") else scenarios.mlp
    shape = (3, 9, 9) if model is scenarios.cnn else (12,)
    parameter = name.split(" ", 2)[2]
    for rank in range(world):
        net = model().double() if scenario == "doubles" else model()
        x, y = next(iter(scenarios.batches(rank, shape, 5)))
        nn.functional.cross_entropy(net(x.double() if scenario == "doubles" else x), y).backward()
        yield dict(net.named_parameters())[parameter].grad


if __name__ == "__main__":
    unittest.main()
