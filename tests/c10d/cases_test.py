#!/usr/bin/env python3
"""What has gone wrong elsewhere, as inputs: NaN, means, mismatches between ranks, and what DistributedDataParallel makes of models that
differ, of parameters that are not used, of sparse gradients and of buffers."""
import math
import struct
import time
import unittest

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

import gradsync.torch  # noqa: F401
import model
import ranks


def bits(tensor):
    return tensor.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def same_everywhere(tensor, world):
    """Bitwise: the ranks agree on the pattern itself."""
    mine = bits(tensor).clone()
    everyone = [torch.zeros_like(mine) for _ in range(world)]
    dist.all_gather(everyone, mine)
    return all(torch.equal(each, mine) for each in everyone)


def signalling_nan(dtype):
    if dtype == torch.float32:
        return torch.tensor(list(struct.pack("<I", 0x7FA00000)), dtype=torch.uint8).view(dtype)[0]
    return torch.tensor(math.nan, dtype=dtype)


def nan_on_one_rank(rank, world):
    for dtype in model.FLOATS:
        for holder in range(world):
            for at in (0, 50, 99):  # in the head, the body and the tail of a vector loop
                for operator in (dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.SUM):
                    for nan in (torch.tensor(math.nan, dtype=dtype), signalling_nan(dtype)):
                        tensor = torch.ones(100, dtype=dtype)
                        if rank == holder:
                            tensor[at] = nan
                        dist.all_reduce(tensor, op=operator)
                        assert torch.isnan(tensor[at]) and torch.isnan(tensor).sum() == 1, (dtype, holder, at, operator)
                        assert same_everywhere(tensor, world)
        zeros = torch.tensor([0.0 if rank == 0 else -0.0, math.inf if rank == 0 else -math.inf], dtype=dtype)
        low, high = zeros.clone(), zeros.clone()
        dist.all_reduce(low, op=dist.ReduceOp.MIN)
        dist.all_reduce(high, op=dist.ReduceOp.MAX)
        assert torch.signbit(low[0]) and not torch.signbit(high[0]), (low, high)  # -0 < +0
        assert low[1] == -math.inf and high[1] == math.inf


def means(rank, world):
    """One mean on every path."""
    expected = sum(range(world)) / world
    average = dist.ReduceOp.AVG
    tensor = torch.full((4,), float(rank))
    dist.all_reduce(tensor, op=average)
    reduced = torch.full((4,), float(rank))
    dist.reduce(reduced, 0, op=average)
    scattered, scattered_too = torch.zeros(1), torch.zeros(1)
    dist.reduce_scatter(scattered, [torch.full((1,), float(rank)) for _ in range(world)], op=average)
    dist.reduce_scatter_tensor(scattered_too, torch.full((world,), float(rank)), op=average)
    sparse = torch.sparse_coo_tensor([[0]], [float(rank)], (4,))
    dist.all_reduce(sparse, op=average)
    results = [tensor[0], scattered[0], scattered_too[0], sparse.to_dense()[0]] + ([reduced[0]] if rank == 0 else [])
    assert all(result.item() == expected for result in results), results


def mismatch(rank, world, calls, words):
    """Calls that differ between ranks are an error on every rank within a second, naming what each called."""
    began = time.monotonic()
    text = ranks.raised(lambda: calls[rank % 2]())
    assert time.monotonic() - began < 10, "the deadline of 20 s was waited for"
    for word in words:
        assert word in text, (word, text)


def counts(rank, world, here, there):
    calls = [lambda: dist.all_reduce(torch.ones(here)), lambda: dist.all_reduce(torch.ones(there))]
    mismatch(rank, world, calls, [str(here), str(there), f"rank {1 - rank}", "all_reduce"])


def dtypes(rank, world):
    calls = [lambda: dist.all_reduce(torch.ones(8)), lambda: dist.all_reduce(torch.ones(8, dtype=torch.float64))]
    mismatch(rank, world, calls, ["f32", "f64"])


def operators(rank, world):
    calls = [lambda: dist.all_reduce(torch.ones(8)), lambda: dist.all_reduce(torch.ones(8), op=dist.ReduceOp.MAX)]
    mismatch(rank, world, calls, ["sum", "max"])


def roots(rank, world):
    """Each expects the other to be the root."""
    calls = [lambda: dist.broadcast(torch.ones(8), 1), lambda: dist.broadcast(torch.ones(8), 0)]
    mismatch(rank, world, calls, ["broadcast", "root 0", "root 1"])


def two_roots(rank, world):
    """Each is the root and has sent: the next call finds it."""
    dist.broadcast(torch.ones(8), rank)
    mismatch(rank, world, [lambda: dist.all_reduce(torch.ones(3))] * 2, ["broadcast", "root 0", "root 1"])


def collectives(rank, world):
    calls = [lambda: dist.all_reduce(torch.ones(8)), lambda: dist.barrier()]
    mismatch(rank, world, calls, ["all_reduce", "barrier"])


def a_call_left_out(rank, world):
    if rank == 0:
        dist.all_reduce(torch.ones(8), async_op=True)
    calls = [lambda: dist.broadcast(torch.ones(3), 0)] * 2
    if rank == 1:
        mismatch(rank, world, calls, ["all_reduce", "broadcast", "#1"])
    else:
        ranks.raised(calls[0])


def one_more_parameter(rank, world):
    net = nn.Sequential(nn.Linear(3, 3), *([nn.Linear(3, 3, bias=False)] if rank == 1 else []))
    text = ranks.raised(DistributedDataParallel, net)
    assert "2 params" in text and "3 params" in text and "ank 0" in text and "ank 1" in text, text


class TwoWays(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, way):
        return {"a": lambda: self.a(x), "b": lambda: self.b(x), "both": lambda: self.a(x) + self.b(x)}[way]()


def gradients(net):
    return [None if p.grad is None else p.grad.clone() for p in net.parameters()]


def accumulate(net, rank, no_sync):
    x = torch.arange(4.0) + rank
    if no_sync is not None:
        with no_sync():
            net(x, "a").sum().backward()
    else:
        net(x, "a").sum().backward()
    net(x, "b").sum().backward()


def outcome(build, step, group, rank, **settings):
    """Gradients after a step of DistributedDataParallel, or the error."""
    torch.manual_seed(1)
    net = build()
    parallel = DistributedDataParallel(net, process_group=group, **settings)
    try:
        step(parallel, rank)
    except RuntimeError as error:
        return str(error)
    return [None if grad is None else grad.to_dense() if grad.is_sparse else grad for grad in gradients(net)]


def as_with_gloo(rank, world, build, step, settings):
    """The same gradients, to the rounding of one sum and one division, or the same error, and our replicas agree bit by bit."""
    ours = outcome(build, step, None, rank, **settings)
    theirs = outcome(build, step, dist.new_group(backend="gloo"), rank, **settings)
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs, (ours, theirs)
        return theirs
    for our, their in zip(ours, theirs):
        assert (our is None) == (their is None), (our, their)
        if our is not None:
            assert torch.allclose(our, their, rtol=4 * torch.finfo(torch.float32).eps), (our, their)
    return ours


def alike(*arguments):
    as_with_gloo(*arguments)


def equal_on_all(rank, world, build, step, settings):
    for grad in as_with_gloo(rank, world, build, step, settings):
        assert grad is None or same_everywhere(grad, world)


def accumulation(net, rank):
    accumulate(net, rank, net.no_sync)


def both_ways(net, rank):
    with net.no_sync():
        net(torch.arange(4.0) + rank, "a").sum().backward()
    net(torch.ones(4) * rank, "both").sum().backward()


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.idle = nn.Embedding(8, 3, sparse=True), nn.Embedding(8, 3, sparse=True)

    def forward(self, x):
        return self.used(x)


def rows(net, rank):
    net(torch.tensor([rank, 5, 5])).sum().backward()


def one_embedding():
    return nn.Sequential(nn.Embedding(8, 3, sparse=True))


def one_embedding_step(net, rank):
    rows(net, rank)
    got = net.module[0].weight.grad.to_dense()
    expected = torch.zeros(8, 3)
    for each in range(dist.get_world_size()):
        for row in (each, 5, 5):
            expected[row] += 1 / dist.get_world_size()
    assert torch.allclose(got, expected, rtol=4 * torch.finfo(torch.float32).eps), (got, expected)


def batch_norm():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def two_forwards(net, rank):
    x, y = torch.randn(6, 3), torch.randn(6, 3)
    (net(x).sum() + 2 * net(y).pow(2).sum()).backward()


class Values(unittest.TestCase):
    def test_nan_wins_whichever_rank_holds_it(self):
        ranks.run(3, nan_on_one_rank)

    def test_every_path_has_the_same_mean(self):
        for world in (2, 3):
            ranks.run(world, means)


class Mismatches(unittest.TestCase):
    def test_counts(self):
        for here, there in ((1025, 262144), (100, 101), (64, 66)):
            with self.subTest(here=here, there=there):
                ranks.run(2, counts, here, there)

    def test_what_is_called(self):
        for body in (dtypes, operators, roots, two_roots, collectives, a_call_left_out):
            with self.subTest(body.__name__):
                ranks.run(2, body)


class Training(unittest.TestCase):
    def test_one_rank_has_one_more_parameter(self):
        ranks.run(2, one_more_parameter)

    # DistributedDataParallel of 1.13 leaves gradients of a parameter unsynchronised that only a pass under no_sync used, refuses
    # a sparse parameter that is not used, and counts a broadcast of buffers as a change to what backward needs. That is above
    # the backend: with ours as with Gloo. What it can do, works.
    def test_accumulation_with_unused_parameters(self):
        ranks.run(2, alike, TwoWays, accumulation, {"find_unused_parameters": True})
        ranks.run(2, equal_on_all, TwoWays, both_ways, {"find_unused_parameters": True})

    def test_sparse_embeddings_of_which_one_is_not_used(self):
        ranks.run(2, alike, Embeddings, rows, {"find_unused_parameters": True})
        ranks.run(2, equal_on_all, one_embedding, one_embedding_step, {})

    def test_buffers_two_forwards_and_one_backward(self):
        ranks.run(2, alike, batch_norm, two_forwards, {"broadcast_buffers": True})
        ranks.run(2, equal_on_all, batch_norm, two_forwards, {"broadcast_buffers": False})


if __name__ == "__main__":
    unittest.main()
