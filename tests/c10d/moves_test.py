#!/usr/bin/env python3
"""Every call that moves data without arithmetic, for every element type and layout."""
import unittest

import torch
import torch.distributed as dist

import model
import ranks

COLLECTIVES = ["broadcast", "all_gather", "all_gather_into_tensor", "all_gather_coalesced", "gather", "scatter",
               "all_to_all_single", "all_to_all", "send_and_recv"]


def group():
    return dist.group.WORLD


def broadcast(rank, world, shape, dtype, place):
    root = world - 1
    tensor = place(model.values(rank, shape, dtype))
    options = dist.BroadcastOptions()
    options.rootRank = root
    group().broadcast([tensor], options).wait()
    yield tensor, model.values(root, shape, dtype)


def all_gather(rank, world, shape, dtype, place):
    outputs = [place(torch.zeros(shape, dtype=dtype)) for _ in range(world)]
    group().allgather([outputs], [place(model.values(rank, shape, dtype))]).wait()
    for each in range(world):
        yield outputs[each], model.values(each, shape, dtype)


def all_gather_into_tensor(rank, world, shape, dtype, place):
    output = place(torch.zeros((world,) + tuple(shape), dtype=dtype))
    group()._allgather_base(output, place(model.values(rank, shape, dtype))).wait()
    yield output, torch.stack([model.values(each, shape, dtype) for each in range(world)])


def all_gather_coalesced(rank, world, shape, dtype, place):
    kinds = [(shape, dtype), ((3,), torch.int16), (shape, dtype)]
    outputs = [[place(torch.zeros(size, dtype=kind)) for size, kind in kinds] for _ in range(world)]
    inputs = [place(model.values(rank + i, size, kind)) for i, (size, kind) in enumerate(kinds)]
    group().allgather_coalesced(outputs, inputs).wait()
    for each in range(world):
        for i, (size, kind) in enumerate(kinds):
            yield outputs[each][i], model.values(each + i, size, kind)


def gather(rank, world, shape, dtype, place):
    root = world - 1
    outputs = [place(torch.zeros(shape, dtype=dtype)) for _ in range(world)] if rank == root else []
    options = dist.GatherOptions()
    options.rootRank = root
    group().gather([outputs] if outputs else [], [place(model.values(rank, shape, dtype))], options).wait()
    for each, output in enumerate(outputs):
        yield output, model.values(each, shape, dtype)


def scatter(rank, world, shape, dtype, place):
    root = world - 1
    inputs = [place(model.values(each, shape, dtype)) for each in range(world)] if rank == root else []
    output = place(torch.zeros(shape, dtype=dtype))
    options = dist.ScatterOptions()
    options.rootRank = root
    group().scatter([output], [inputs] if inputs else [], options).wait()
    yield output, model.values(rank, shape, dtype)


def all_to_all_single(rank, world, shape, dtype, place):
    rows = (world,) + tuple(shape)
    output = place(torch.zeros(rows, dtype=dtype))
    source = place(torch.stack([model.values(rank + 2 * to, shape, dtype) for to in range(world)]))
    group().alltoall_base(output, source, [], []).wait()
    yield output, torch.stack([model.values(each + 2 * rank, shape, dtype) for each in range(world)])


def all_to_all(rank, world, shape, dtype, place):
    outputs = [place(torch.zeros(shape, dtype=dtype)) for _ in range(world)]
    group().alltoall(outputs, [place(model.values(rank + 2 * to, shape, dtype)) for to in range(world)]).wait()
    for each in range(world):
        yield outputs[each], model.values(each + 2 * rank, shape, dtype)


def send_and_recv(rank, world, shape, dtype, place):
    to, source = (rank + 1) % world, (rank - 1) % world
    output = place(torch.zeros(shape, dtype=dtype))
    sent = group().send([place(model.values(rank, shape, dtype))], to, 7)
    received = group().recv([output], source, 7)
    received.wait()
    sent.wait()
    yield output, model.values(source, shape, dtype)


def grid(rank, world, collective, dtypes, shapes, layouts):
    for dtype in dtypes:
        for shape in shapes:
            for layout in layouts + [model.mixed(rank)]:
                for result, expected in globals()[collective](rank, world, shape, dtype, layout):
                    assert model.same(result, expected), (
                        f"{collective} {dtype} {list(shape)} {layout.__name__}: {result}, expected {expected}")


def uneven(rank, world):
    """Lists may differ in size between ranks, where every rank can know the sizes."""
    outputs = [torch.zeros(each + 1) for each in range(world)]
    dist.all_gather(outputs, torch.full((rank + 1,), float(rank)))
    assert [output.tolist() for output in outputs] == [[float(each)] * (each + 1) for each in range(world)]
    # Rank r sends r + 1 rows to each; some send nothing to rank 0.
    sent = [0 if to == 0 else rank + 1 for to in range(world)]
    received = [0 if rank == 0 else each + 1 for each in range(world)]
    output = torch.zeros(sum(received), 2)
    dist.all_to_all_single(output, torch.full((sum(sent), 2), float(rank)), received, sent)
    assert output[:, 0].tolist() == [float(each) for each in range(world) for _ in range(received[each])]


def lists_in_one_tensor(rank, world):
    """The chunks of one tensor are used where they lie."""
    whole = torch.zeros(world, 3)
    dist.all_gather(list(whole), torch.full((3,), float(rank)))
    assert whole[:, 0].tolist() == [float(each) for each in range(world)]


def conjugated_inputs(rank, world):
    """A lazily conjugated tensor is sent as its value. (As an output PyTorch itself hands over a copy of it.)"""
    output = torch.zeros(world, 2, dtype=torch.complex64)
    group()._allgather_base(output, torch.full((2,), complex(rank, 1)).conj()).wait()
    assert output[:, 0].tolist() == [complex(each, -1) for each in range(world)]


def sharing_memory(rank, world):
    """What would depend on who moves first is refused on every rank before anything moves, and the group goes on."""
    whole, mine = torch.zeros(2 * world + 2), torch.ones(2)
    pieces = [whole[each:each + 2] for each in range(world)]  # each shares an element with the next
    twice = [whole[:2]] * world
    columns = torch.zeros(3, world)
    overlapping = [columns[:, each:each + 2] for each in range(world - 1)] + [torch.zeros(3, 2)]
    stacked = torch.zeros(6).as_strided((2, 3), (1, 1))  # (0, 1) is (1, 0)
    apart = [torch.zeros(2) for _ in range(world)]
    root = dist.GatherOptions()
    calls = {
        "all_gather": [lambda: dist.all_gather(pieces, mine), lambda: dist.all_gather(twice, mine),
                       lambda: dist.all_gather(overlapping, torch.ones(3, 2)), lambda: dist.all_gather(apart, apart[rank - 1]),
                       lambda: dist.all_gather([torch.zeros(2, 3)] * (world - 1) + [stacked], torch.ones(2, 3))],
        "all_gather_into_tensor": [lambda: group()._allgather_base(whole[:2 * world], whole[2 * rank + 1:2 * rank + 3]),
                                   lambda: group()._allgather_base(torch.zeros(2).expand(world, 2), mine)],
        "all_gather_coalesced": [lambda: group().allgather_coalesced([[piece] for piece in pieces], [mine])],
        "gather": [lambda: group().gather([pieces] if rank == 0 else [], [mine], root)],
        "scatter": [lambda: group().scatter([pieces[1]], [pieces] if rank == 0 else [], dist.ScatterOptions())],
        "all_to_all": [lambda: group().alltoall(pieces, apart), lambda: group().alltoall(apart, [apart[-1]] * world)],
        "all_to_all_single": [lambda: group().alltoall_base(whole[:2 * world], whole[1:2 * world + 1], [], [])],
        "reduce_scatter": [lambda: dist.reduce_scatter(apart[rank - 1], apart)],
        "reduce_scatter_tensor": [lambda: group()._reduce_scatter_base(whole[1:3], whole[:2 * world])],
        "all_reduce": [lambda: dist.all_reduce(stacked), lambda: dist.all_reduce(torch.zeros(1).expand(3))],
        "all_reduce_coalesced": [lambda: group().allreduce_coalesced(pieces, dist.AllreduceCoalescedOptions())],
        "broadcast": [lambda: dist.broadcast(stacked, 0)],
        "recv": [lambda: group().recv([stacked], (rank + 1) % world, 0)],
    }
    for name, refused in calls.items():
        for number, each in enumerate(refused):
            if rank > 0 and name in ("gather", "scatter") or rank == 0 and name in ("broadcast", ):
                continue  # only the root writes several tensors or has inputs; only the others write
            text = ranks.raised(each)
            assert f"gradsync rank {rank} of {world}: {name}" in text and "share memory" in text, (name, number, text)
    assert not whole.any() and not columns.any()
    dist.all_reduce(mine)
    assert mine.tolist() == [world] * 2


def interleaved(rank, world):
    """Memory that is shared only as a whole, element by element apart, is fine, and so is working in place."""
    columns = torch.zeros(3, world)
    dist.all_gather([columns[:, each] for each in range(world)], torch.full((3,), float(rank)))
    assert columns.tolist() == [[float(each) for each in range(world)]] * 3
    numbers = torch.zeros(2 * world, dtype=torch.complex64)
    dist.all_gather([numbers.real, numbers.imag] + [torch.zeros(2 * world)] * (world > 2), torch.full((2 * world,), float(rank)))
    assert numbers.tolist() == [complex(0, 1)] * (2 * world)
    outputs = [torch.full((2,), float(rank)) for _ in range(world)]
    dist.all_gather(outputs, outputs[rank])
    assert [output.tolist() for output in outputs] == [[float(each)] * 2 for each in range(world)]
    whole = torch.zeros(world, 2)
    whole[rank] = rank
    group()._allgather_base(whole, whole[rank]).wait()
    assert whole[:, 1].tolist() == [float(each) for each in range(world)]
    group()._reduce_scatter_base(whole[rank], whole, dist.ReduceScatterOptions()).wait()
    assert whole[rank].tolist() == [float(rank * world)] * 2
    blocks = [torch.full((2,), float(rank)) for _ in range(world)]
    dist.reduce_scatter(blocks[rank], blocks)
    assert blocks[rank].tolist() == [sum(range(world))] * 2
    options = dist.ScatterOptions()
    group().scatter([blocks[0] if rank == 0 else blocks[1]], [blocks] if rank == 0 else [], options).wait()
    swapped = torch.full((world,), float(rank))
    group().alltoall_base(swapped, swapped, [], []).wait()
    assert swapped.tolist() == [float(each) for each in range(world)]
    same = torch.ones(3)
    dist.reduce_scatter(torch.zeros(3), [same] * world)  # inputs may share


class Moves(unittest.TestCase):
    def test_what_shares_memory_is_refused(self):
        ranks.run(3, sharing_memory)

    def test_what_only_interleaves_or_is_in_place_works(self):
        for world in (2, 3):
            ranks.run(world, interleaved)

    def test_every_element_type(self):
        for collective in COLLECTIVES:
            with self.subTest(collective):
                ranks.run(2, grid, collective, model.DTYPES, [(4, 6)], [model.contiguous, model.sliced])

    def test_every_layout(self):
        for collective in COLLECTIVES:
            with self.subTest(collective):
                ranks.run(3, grid, collective, [torch.float32, torch.bool, torch.complex128], model.SHAPES, model.LAYOUTS)

    def test_sizes_may_differ_between_ranks(self):
        ranks.run(3, uneven)

    def test_chunks_of_one_tensor(self):
        ranks.run(3, lists_in_one_tensor)

    def test_conjugated_inputs(self):
        ranks.run(2, conjugated_inputs)


if __name__ == "__main__":
    unittest.main()
