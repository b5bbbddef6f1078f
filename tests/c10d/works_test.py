#!/usr/bin/env python3
"""Works and futures, timeouts, groups of groups, sparse tensors, registered memory, and the barrier that names who is missing."""
import datetime
import time
import unittest

import torch
import torch.distributed as dist

import gradsync.torch
import model
import ranks


def futures(rank, world):
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    assert [t.tolist() for t in future.wait()] == [[world] * 3]
    doubled = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(lambda f: 2 * f.value()[0]).then(lambda f: f.value() + 1)
    assert doubled.wait().tolist() == [2 * world + 1] * 2
    outputs = [torch.zeros(1) for _ in range(world)]
    gathered = dist.all_gather(outputs, torch.tensor([float(rank)]), async_op=True).get_future().wait()
    assert [t.item() for t in gathered] == list(range(world))
    assert dist.barrier(async_op=True).get_future().wait() == []
    work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    assert work.get_future().done() and work.is_success() and work.result()[0].item() == world


def callbacks_that_wait(rank, world):
    """A callback may itself wait for a later collective, and several may do so at once (as PowerSGD's hook does)."""
    def again(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    # The callbacks' collectives must come in the same order on every rank: one chain at a time, begun in one.
    for _ in range(5):
        chain = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(again)
        assert chain.wait().tolist() == [world * world] * 4
    groups = [dist.new_group() for _ in range(4)]  # in groups of their own they may run at once

    def within(group):
        return lambda f: dist.all_reduce(f.value()[0], group=group, async_op=True).get_future().wait()[0]

    chains = [dist.all_reduce(torch.ones(2), async_op=True).get_future().then(within(group)) for group in groups]
    assert [chain.wait().tolist() for chain in chains] == [[world * world] * 2] * 4


def polled_and_forgotten(rank, world):
    """Staging is written back also for a work that is only polled, and for one that nobody holds."""
    wide = torch.ones(4, 2)
    work = dist.all_reduce(wide[:, 0], async_op=True)
    until = time.monotonic() + 20
    while not work.is_completed():
        assert time.monotonic() < until
    assert wide.tolist() == [[world, 1]] * 4
    forgotten = torch.ones(4, 2)
    dist.all_reduce(forgotten[:, 1], async_op=True)
    dist.barrier()
    assert forgotten.tolist() == [[1, world]] * 4


def a_wait_that_is_too_short(rank, world):
    """The work goes on, and the group with it."""
    output = torch.zeros(2)
    if rank == 0:
        work = dist.irecv(output, 1, tag=3)
        assert "timeout" in ranks.raised(work.wait, datetime.timedelta(milliseconds=30))
        assert "still under way" in ranks.raised(work.result)
        dist.barrier()
        work.wait()
        assert output.tolist() == [5, 5] and work._source_rank() == 1
    else:
        dist.barrier()
        dist.send(torch.full((2,), 5.0), 0, tag=3)


def tags_and_any_source(rank, world):
    if rank == 0:
        first, second = torch.zeros(1), torch.zeros(1)
        dist.recv(second, 1, tag=2)  # sent last
        dist.recv(first, 1, tag=1)
        assert (first.item(), second.item()) == (1, 2)
        seen = set()
        for _ in range(world - 1):
            tensor = torch.zeros(1)
            source = dist.recv(tensor, tag=9)
            assert tensor.item() == source
            seen.add(source)
        assert seen == set(range(1, world))
        # Futures of receives, in an order that is not that of their ends.
        late, early = torch.zeros(1), torch.zeros(1)
        futures = [dist.irecv(late, 1, tag=11).get_future(), dist.irecv(early, 1, tag=10).get_future()]
        assert futures[1].wait()[0].item() == 10
        dist.send(torch.zeros(1), 1)
        assert futures[0].wait()[0].item() == 11
    else:
        if rank == 1:
            dist.send(torch.tensor([1.0]), 0, tag=1)
            dist.send(torch.tensor([2.0]), 0, tag=2)
        dist.send(torch.tensor([float(rank)]), 0, tag=9)
        if rank == 1:
            dist.send(torch.tensor([10.0]), 0, tag=10)
            dist.recv(torch.zeros(1), 0)
            dist.send(torch.tensor([11.0]), 0, tag=11)
    assert "expected 0 to" in ranks.raised(dist.group.WORLD.send, [torch.zeros(1)], world, 0)
    assert "tag -1" in ranks.raised(dist.group.WORLD.send, [torch.zeros(1)], (rank + 1) % world, -1)
    most = 2**31 - 1  # of an int, which is what torch.distributed passes on
    sent, received = dist.isend(torch.tensor([7.0]), (rank + 1) % world, tag=most), torch.zeros(1)
    dist.recv(received, (rank - 1) % world, tag=most)
    sent.wait()
    assert received.item() == 7
    if torch.__version__ < "2":  # whose wrapper of groups has made an int of it before we see it
        for tag in (most + 1, 2**32 + 5):
            for call in (dist.send, dist.isend, dist.recv, dist.irecv):
                text = ranks.raised(call, torch.zeros(1), (rank + 1) % world, tag=tag)
                assert f"tag {tag}, expected 0 to {most}" in text, text
            assert f"tag {tag}, expected 0 to {most}" in ranks.raised(dist.recv, torch.zeros(1), tag=tag)


def sequence_numbers(rank, world):
    group = gradsync.torch.group_of()
    before = group._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    dist.barrier()
    group._set_sequence_number_for_group()
    assert group._get_sequence_number_for_group() == before + 2


def sub_groups(rank, world):
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 2])]
    for members, pair in zip(([0, 2], [1, 2]), pairs):
        if rank in members:
            tensor = torch.tensor([float(rank)])
            dist.all_reduce(tensor, group=pair)
            assert tensor.item() == sum(members)
            dist.destroy_process_group(pair)
            assert "was destroyed" in ranks.raised(pair.allreduce, [tensor])
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == world


def timeouts(rank, world):
    """The group's own, and that of a call."""
    quick = dist.new_group(timeout=datetime.timedelta(milliseconds=300))
    patient = dist.new_group()
    if rank == 0:
        began = time.monotonic()
        text = ranks.raised(dist.barrier, quick)
        assert "timeout after 0.3 s" in text and "barrier" in text and "rank 1" in text, text
        assert time.monotonic() - began < 15  # far below the 20 s of the others
        options = dist.AllreduceOptions()
        options.timeout = datetime.timedelta(milliseconds=200)
        text = ranks.raised(patient.allreduce([torch.ones(1)], options).wait)
        assert "timeout after 0.2 s" in text, text
    dist.barrier()


def a_rank_that_refuses_locally(rank, world):
    """The others cannot know, and wait until their deadline; then each says who never came."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    store = torch.distributed.distributed_c10d._get_default_store()
    if rank == 1:
        ranks.raised(group.allreduce, [torch.ones(1).expand(3)])
        store.wait([f"late {each}" for each in range(world) if each != 1], datetime.timedelta(seconds=30))
        return
    text = ranks.raised(lambda: dist.all_reduce(torch.ones(3), group=group))
    store.set(f"late {rank}", "")
    assert "timeout after" in text and "all_reduce" in text and "waiting for rank" in text and "for rank 1" in text, text


def groups_in_another_order(rank, world):
    """Rank 2 makes another group first. It, at least, is told what the others make; they are told by it or by PyTorch's barrier."""
    seconds = datetime.timedelta(seconds=5)
    first, second = ([0, 2], [0, 1]) if rank == 2 else ([0, 1], [0, 2])
    text = ranks.raised(lambda: [dist.new_group(members, timeout=seconds) for members in (first, second)])
    both = "[0, 1]" in text and "[0, 2]" in text and "same order" in text
    left = "left the rendezvous" in text and "[0, 1]" in text and "[0, 2]" in text
    assert both or left or rank < 2 and "store based barrier" in text, text


def a_group_of_one_in_another_order(rank, world):
    seconds = datetime.timedelta(seconds=5)
    first, second = ([1], [0, 1]) if rank == 1 else ([0, 1], [1])
    text = ranks.raised(lambda: [dist.new_group(members, timeout=seconds) for members in (first, second)])
    assert "[0, 1]" in text and "[1]" in text or "store based barrier" in text, text


def batches(rank, world):
    operations, received = [], []
    for peer in range(world):
        if peer != rank:
            received.append((peer, torch.zeros(2)))
            operations.append(dist.P2POp(dist.irecv, received[-1][1], peer))
            operations.append(dist.P2POp(dist.isend, torch.full((2,), float(rank)), peer))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert all(tensor.tolist() == [peer, peer] for peer, tensor in received)


def sparse_of(rank, dtype, dense=()):
    """Rank 0 has no entries; the others share row 1, and row 3 is there twice."""
    count = 0 if rank == 0 else 3
    rows = torch.tensor([[1, 3, 3]])[:, :count]
    numbers = torch.full((count,) + dense, rank + 1)
    values = torch.complex(numbers.double(), -numbers.double()).to(dtype) if dtype.is_complex else numbers.to(dtype)
    return torch.sparse_coo_tensor(rows, values, (6,) + dense)


def sparse(rank, world):
    for dtype in model.INTEGERS + model.FLOATS + model.COMPLEX:
        for dense in ((), (2,), (0,)):
            for name in ("SUM", "AVG", "PREMUL_SUM"):
                if not model.supported(name, dtype):
                    continue
                tensor = sparse_of(rank, dtype, dense)
                dist.group.WORLD.allreduce([tensor], _all_reduce_options(name)).wait()
                parts = [_dense(sparse_of(each, dtype, dense)) for each in range(world)]
                expected = model.reduced(name, parts)
                assert model.same(_dense(tensor), expected), (dtype, dense, name, tensor, expected)
    assert "MAX" in ranks.raised(dist.all_reduce, sparse_of(rank, torch.float32), dist.ReduceOp.MAX)
    text = ranks.raised(dist.broadcast, sparse_of(rank, torch.float32), 0)
    assert "sparse" in text.lower(), text


def _dense(tensor):
    """to_dense() lacks some element types."""
    wide = torch.complex128 if tensor.dtype.is_complex else torch.float64
    return tensor.to(wide).to_dense().to(tensor.dtype)


def _all_reduce_options(name):
    options = dist.AllreduceOptions()
    options.reduceOp = model.operator(name)
    return options


def sparse_out_of_step(rank, world):
    """Asynchronous like any other: what a rank does meanwhile may be what another waits for."""
    tensor = sparse_of(rank, torch.float32)
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        dist.send(torch.ones(1), 1)
    else:
        dist.recv(torch.zeros(1), 0)
        work = dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(torch.ones(1))
    assert work.get_future().wait()[0].to_dense().tolist() == tensor.to_dense().tolist() == [0, 2, 0, 4, 0, 0]


def sparse_mismatch(rank, world):
    text = ranks.raised(dist.all_reduce, torch.sparse_coo_tensor([[0]], [1.0], (4 + rank,)))
    assert "[4]" in text and "[5]" in text and f"rank {1 - rank}" in text, text


def factors(rank, world):
    tensor = torch.ones(2)
    factor = torch.tensor(0.25)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum([factor] if torch.__version__ < "2" else factor))
    assert tensor.tolist() == [0.25 * world] * 2


def missing_at_the_barrier(rank, world):
    seconds = datetime.timedelta(seconds=1)
    dist.monitored_barrier(timeout=seconds, wait_all_ranks=True)
    dist.monitored_barrier()
    if rank == 0:
        text = ranks.raised(dist.monitored_barrier, timeout=datetime.timedelta(milliseconds=100), wait_all_ranks=True)
        assert text == "Ranks 1, 2 failed to pass monitoredBarrier in 100 ms", text
    dist.barrier()
    if rank != 0:  # late, and told so at once
        text = ranks.raised(dist.monitored_barrier, timeout=datetime.timedelta(seconds=20))
        assert f"Rank {rank} successfully reached monitoredBarrier" in text and "Ranks 1, 2 failed" in text, text
    dist.monitored_barrier(timeout=seconds)  # the group lives
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == world


def registered_memory(rank, world):
    tensor = gradsync.torch.empty(1000, 100)
    assert tensor.shape == (1000, 100) and tensor.dtype == torch.float32
    tensor.fill_(rank + 1)
    dist.all_reduce(tensor)
    assert tensor.eq(world * (world + 1) / 2).all()
    assert gradsync.torch.empty((0, 3), dtype=torch.int64).shape == (0, 3)
    grown = gradsync.torch.empty(8, dtype=torch.bfloat16).requires_grad_()
    grown.sum().backward()
    text = ranks.raised(gradsync.torch.empty, 2**62, 2**62)
    assert "cannot be" in text, text
    dist.destroy_process_group()
    tensor.mul_(2)  # it outlives the group
    assert tensor.eq(world * (world + 1)).all()


def gradients_and_inference(rank, world):
    """Results are written as memory: into leaves that require gradients, and into inference tensors."""
    leaf = torch.ones(4, 2, requires_grad=True)
    dist.all_reduce(leaf[:, 0].detach())
    dist.broadcast(leaf, 0)
    with torch.inference_mode():
        made = torch.ones(4, 2)
    dist.all_reduce(made[:, 1])
    assert made.tolist() == [[1, world]] * 4
    view = torch.ones(2, 4, requires_grad=True)
    dist.all_reduce(view.t())  # staged
    assert view.tolist() == [[world] * 4] * 2


class Works(unittest.TestCase):
    def test_futures(self):
        ranks.run(2, futures)

    def test_callbacks_may_wait(self):
        ranks.run(2, callbacks_that_wait)

    def test_a_work_may_be_polled_or_forgotten(self):
        ranks.run(2, polled_and_forgotten)

    def test_a_wait_that_is_too_short(self):
        ranks.run(2, a_wait_that_is_too_short)

    def test_tags_and_any_source(self):
        ranks.run(3, tags_and_any_source)

    def test_sequence_numbers(self):
        ranks.run(2, sequence_numbers)

    def test_sub_groups(self):
        ranks.run(3, sub_groups)

    def test_timeouts(self):
        ranks.run(2, timeouts)

    def test_a_deadline_names_the_rank_that_never_came(self):
        for world in (2, 4):
            ranks.run(world, a_rank_that_refuses_locally)

    def test_groups_made_in_different_orders(self):
        ranks.run(3, groups_in_another_order)
        ranks.run(2, a_group_of_one_in_another_order)

    def test_batches(self):
        ranks.run(3, batches)

    def test_gradients_and_inference(self):
        ranks.run(2, gradients_and_inference)


class Others(unittest.TestCase):
    def test_sparse_tensors(self):
        ranks.run(3, sparse)

    def test_sparse_tensors_are_asynchronous(self):
        ranks.run(2, sparse_out_of_step)

    def test_sparse_tensors_of_different_shapes(self):
        ranks.run(2, sparse_mismatch)

    def test_factors(self):
        ranks.run(2, factors)

    def test_the_barrier_names_who_is_missing(self):
        ranks.run(3, missing_at_the_barrier)

    def test_registered_memory(self):
        ranks.run(2, registered_memory)


if __name__ == "__main__":
    unittest.main()
