#!/usr/bin/env python3
"""Every reduction, for every operator, element type and layout, against the model."""
import unittest

import torch
import torch.distributed as dist

import model
import ranks

COLLECTIVES = ["all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor"]


def group():
    return dist.group.WORLD


def all_reduce(op, rank, world, shape, dtype, place):
    tensor = place(model.values(rank, shape, dtype))
    options = dist.AllreduceOptions()
    options.reduceOp = op
    group().allreduce([tensor], options).wait()
    yield "", tensor, lambda: [model.values(each, shape, dtype) for each in range(world)]


def all_reduce_coalesced(op, rank, world, shape, dtype, place):
    shapes = [shape, (5,), shape]
    tensors = [place(model.values(rank + i, each, dtype)) for i, each in enumerate(shapes)]
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = op
    group().allreduce_coalesced(tensors, options).wait()
    for i, each in enumerate(shapes):
        yield f"[{i}]", tensors[i], lambda: [model.values(r + i, each, dtype) for r in range(world)]


def reduce(op, rank, world, shape, dtype, place):
    root = world - 1
    tensor = place(model.values(rank, shape, dtype))
    options = dist.ReduceOptions()
    options.reduceOp, options.rootRank = op, root
    group().reduce([tensor], options).wait()
    yield "", tensor, lambda: [model.values(each, shape, dtype) for each in (range(world) if rank == root else [rank])]


def reduce_scatter(op, rank, world, shape, dtype, place):
    output = place(torch.zeros(shape, dtype=dtype))
    inputs = [place(model.values(rank + 2 * to, shape, dtype)) for to in range(world)]
    options = dist.ReduceScatterOptions()
    options.reduceOp = op
    group().reduce_scatter([output], [inputs], options).wait()
    yield "", output, lambda: [model.values(each + 2 * rank, shape, dtype) for each in range(world)]
    for to in range(world):
        assert model.same(inputs[to], model.values(rank + 2 * to, shape, dtype)), "the input was written"


def reduce_scatter_tensor(op, rank, world, shape, dtype, place):
    output = place(torch.zeros(shape, dtype=dtype))
    whole = place(torch.stack([model.values(rank + 2 * to, shape, dtype) for to in range(world)]))
    options = dist.ReduceScatterOptions()
    options.reduceOp = op
    group()._reduce_scatter_base(output, whole, options).wait()
    yield "", output, lambda: [model.values(each + 2 * rank, shape, dtype) for each in range(world)]


def unchanged(collective, rank, world):
    """On ranks that get no result a tensor holds what it held."""
    return collective == "reduce" and rank != world - 1


def check_supported(collective, name, rank, world, shape, dtype, place):
    for where, result, parts in globals()[collective](model.operator(name), rank, world, shape, dtype, place):
        expected = parts()[0] if unchanged(collective, rank, world) else model.reduced(name, parts())
        assert model.same(result, expected), (
            f"{collective}{where} {name} {dtype} {list(shape)} {place.__name__}: {result}, expected {expected}")


def check_refused(collective, name, rank, world, dtype):
    """An error that names type and operator, before anything moves: the next call works."""
    text = ranks.raised(lambda: list(globals()[collective](model.operator(name), rank, world, (4,), dtype, model.contiguous)))
    assert name in text and str(dtype).split(".")[1] in text, text
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == world


def every_operator(rank, world, collective):
    for dtype in model.DTYPES:
        for name in model.OPERATORS:
            if model.supported(name, dtype):
                check_supported(collective, name, rank, world, (4, 6), dtype, model.contiguous)
            else:
                check_refused(collective, name, rank, world, dtype)


def every_layout(rank, world, collective):
    for dtype in (torch.float32, torch.int16, torch.complex64, torch.bfloat16):
        for shape in model.SHAPES:
            for layout in model.LAYOUTS + [model.mixed(rank)]:
                for name in ("SUM", "AVG"):
                    check_supported(collective, name, rank, world, shape, dtype, layout)


def wraps(rank, world):
    """Integers wrap at their own width, in whatever width they are added."""
    for dtype in model.INTEGERS:
        tensor = torch.full((3,), torch.iinfo(dtype).max, dtype=dtype)
        dist.all_reduce(tensor)
        expected = (torch.iinfo(dtype).max * world) % 2 ** torch.iinfo(dtype).bits
        limit = torch.iinfo(dtype).max
        assert tensor[0].item() == (expected if expected <= limit else expected - 2 ** torch.iinfo(dtype).bits), (dtype, tensor)
        tensor = torch.full((3,), torch.iinfo(dtype).min, dtype=dtype)
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        assert tensor[0].item() == torch.iinfo(dtype).min, (dtype, tensor)


def uneven_lists(rank, world):
    """The parts of a reduce-scatter may differ in size."""
    sizes = [2 * each + 1 for each in range(world)]
    output = torch.zeros(sizes[rank])
    dist.reduce_scatter(output, [torch.full((size,), float(rank + i)) for i, size in enumerate(sizes)])
    assert output.tolist() == [sum(each + rank for each in range(world))] * sizes[rank]


def reads_inputs_that_share_memory(rank, world):
    output = torch.zeros(2, 3)
    dist.reduce_scatter(output, [torch.tensor([[1.0], [2.0]]).expand(2, 3) for _ in range(world)])
    assert output.tolist() == [[world] * 3, [2 * world] * 3]
    text = ranks.raised(dist.all_reduce, torch.ones(1).expand(4))
    assert "share memory" in text, text


class Reductions(unittest.TestCase):
    def test_every_operator_and_element_type(self):
        for collective in COLLECTIVES:
            with self.subTest(collective):
                ranks.run(2, every_operator, collective)

    def test_every_layout(self):
        for collective in COLLECTIVES:
            with self.subTest(collective):
                ranks.run(3, every_layout, collective)

    def test_integers_wrap_at_their_own_width(self):
        ranks.run(3, wraps)

    def test_parts_of_a_reduce_scatter_may_differ_in_size(self):
        ranks.run(3, uneven_lists)

    def test_inputs_may_share_memory_and_outputs_may_not(self):
        ranks.run(2, reads_inputs_that_share_memory)


if __name__ == "__main__":
    unittest.main()
