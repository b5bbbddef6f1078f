"""Every collective on every element type, over threads, against a model of plain Python integers."""
import array
import unittest

import gradsync
from support import needs_numpy, numpy, on_threads

SIZES = (1, 2, 3, 5)
NAMES = ("float16", "float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64", "bool")


def value(rank, i):
    """Small: sums over all ranks are exact in every type."""
    return (3 * rank + i) % 7


def values(rank, count, dtype):
    return numpy.array([value(rank, i) for i in range(count)]).astype(dtype)


def total(size, i, dtype):
    if dtype == "bool":
        return any(value(r, i) for r in range(size))
    return sum(value(r, i) for r in range(size))


@needs_numpy
class EveryType(unittest.TestCase):
    def check(self, body):
        for size in SIZES:
            for dtype in NAMES:
                with self.subTest(size=size, dtype=dtype):
                    on_threads(size, lambda comm: body(comm, dtype))

    def test_all_reduce_sums_in_place_and_out_of_place(self):
        def body(comm, dtype):
            expected = numpy.array([total(comm.size, i, dtype) for i in range(11)]).astype(dtype)
            x, out = values(comm.rank, 11, dtype), numpy.ones(11, dtype)
            comm.all_reduce(x, out=out)
            numpy.testing.assert_array_equal(out, expected)
            numpy.testing.assert_array_equal(x, values(comm.rank, 11, dtype))
            comm.all_reduce(x, op=gradsync.ReduceOp.SUM)
            numpy.testing.assert_array_equal(x, expected)

        self.check(body)

    def test_reduce_scatter_leaves_each_rank_its_block(self):
        def body(comm, dtype):
            x, out = values(comm.rank, 4 * comm.size, dtype), numpy.ones(4, dtype)
            comm.reduce_scatter(x, out, op="max")
            expected = [max(value(r, 4 * comm.rank + i) for r in range(comm.size)) for i in range(4)]
            numpy.testing.assert_array_equal(out, numpy.array(expected).astype(dtype))
            counts = [r % 3 for r in range(comm.size)]
            at = sum(counts[: comm.rank])
            out = numpy.ones(counts[comm.rank], dtype)
            comm.reduce_scatter(values(comm.rank, sum(counts), dtype), out, counts=counts)
            expected = [total(comm.size, at + i, dtype) for i in range(counts[comm.rank])]
            numpy.testing.assert_array_equal(out, numpy.array(expected).astype(dtype))

        self.check(body)

    def test_gathers_bring_all_blocks_in_rank_order(self):
        def body(comm, dtype):
            root, counts = comm.size - 1, [(r + 1) % 3 for r in range(comm.size)]
            whole = numpy.concatenate([values(r, 4, dtype) for r in range(comm.size)])
            uneven = numpy.concatenate([values(r, counts[r], dtype) for r in range(comm.size)])
            out = numpy.ones((comm.size, 4), dtype)
            comm.all_gather(values(comm.rank, 4, dtype), out)
            numpy.testing.assert_array_equal(out.ravel(), whole)
            out = numpy.ones(sum(counts), dtype)
            comm.all_gather(values(comm.rank, counts[comm.rank], dtype), out, counts)
            numpy.testing.assert_array_equal(out, uneven)
            out = numpy.ones(4 * comm.size, dtype) if comm.rank == root else None
            comm.gather(values(comm.rank, 4, dtype), out, root=root)
            if comm.rank == root:
                numpy.testing.assert_array_equal(out, whole)
            out = numpy.ones(sum(counts), dtype)
            comm.gather(values(comm.rank, counts[comm.rank], dtype), out, root=root, counts=counts)
            numpy.testing.assert_array_equal(out, uneven if comm.rank == root else numpy.ones(sum(counts), dtype))

        self.check(body)

    def test_scatters_hand_out_blocks_of_the_root(self):
        def body(comm, dtype):
            root, counts = 0, [(r + 1) % 3 for r in range(comm.size)]
            out = numpy.ones(4, dtype)
            comm.scatter(values(root, 4 * comm.size, dtype) if comm.rank == root else None, out)
            numpy.testing.assert_array_equal(out, values(root, 4 * comm.size, dtype)[4 * comm.rank:][:4])
            out = numpy.ones(counts[comm.rank], dtype)
            comm.scatter(values(root, sum(counts), dtype), out, root, counts)
            at = sum(counts[: comm.rank])
            numpy.testing.assert_array_equal(out, values(root, sum(counts), dtype)[at:][: counts[comm.rank]])

        self.check(body)

    def test_broadcast_and_reduce_have_a_root(self):
        def body(comm, dtype):
            root = comm.size // 2
            x = values(comm.rank, 9, dtype)
            comm.broadcast(x, root)
            numpy.testing.assert_array_equal(x, values(root, 9, dtype))
            x = values(comm.rank, 9, dtype)
            comm.reduce(x, root, "min")
            expected = numpy.array([min(value(r, i) for r in range(comm.size)) for i in range(9)]).astype(dtype)
            numpy.testing.assert_array_equal(x, expected if comm.rank == root else values(comm.rank, 9, dtype))

        self.check(body)

    def test_all_to_all_transposes_blocks(self):
        def body(comm, dtype):
            out = numpy.ones(4 * comm.size, dtype)
            comm.all_to_all(values(comm.rank, 4 * comm.size, dtype), out)
            blocks = [values(r, 4 * comm.size, dtype)[4 * comm.rank:][:4] for r in range(comm.size)]
            numpy.testing.assert_array_equal(out, numpy.concatenate(blocks))
            sent = [r + 1 for r in range(comm.size)]  # to rank r
            out = numpy.ones((comm.rank + 1) * comm.size, dtype)
            comm.all_to_all(values(comm.rank, sum(sent), dtype), out, sent, [comm.rank + 1] * comm.size)
            at = sum(sent[: comm.rank])
            blocks = [values(r, sum(sent), dtype)[at:][: comm.rank + 1] for r in range(comm.size)]
            numpy.testing.assert_array_equal(out, numpy.concatenate(blocks))

        self.check(body)

    def test_send_and_recv_carry_every_type(self):
        def body(comm, dtype):
            if comm.size == 1:
                return
            right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            sending = comm.isend(values(comm.rank, 6, dtype), right, tag=5)
            x = numpy.ones(6, dtype)
            self.assertEqual(comm.recv(x, left, tag=5), left)
            sending.wait()
            numpy.testing.assert_array_equal(x, values(left, 6, dtype))

        self.check(body)


@needs_numpy
class Averages(unittest.TestCase):
    def test_the_mean_is_the_same_on_every_path(self):
        for size in SIZES:
            for dtype in ("float16", "float32", "float64", "int32"):
                mean = numpy.array((size - 1) / 2).astype(dtype)

                def body(comm):
                    x = numpy.full(3 * comm.size, comm.rank, dtype)
                    part, rooted = numpy.empty(3, dtype), x.copy()
                    comm.reduce_scatter(x, part, "avg")
                    comm.reduce(rooted, 0, "avg")
                    comm.all_reduce(x, "avg")
                    self.assertTrue((x == mean).all() and (part == mean).all())
                    if comm.rank == 0:
                        self.assertTrue((rooted == mean).all())

                on_threads(size, body)

    def test_nan_propagates_whichever_rank_holds_it(self):
        def body(comm):
            for dtype in ("float16", "float32", "float64"):
                for op in ("min", "max"):
                    x = numpy.array([numpy.nan if comm.rank == holder else 1.0 for holder in range(comm.size)], dtype)
                    comm.all_reduce(x, op)
                    self.assertTrue(numpy.isnan(x).all(), (dtype, op))

        on_threads(3, body)


class WithoutNumPy(unittest.TestCase):
    def test_arrays_of_the_standard_library(self):
        def body(comm):
            for letter in "bBiIlLqQfd":
                x = array.array(letter, [comm.rank, 1, 2])
                comm.all_reduce(x)
                self.assertEqual(list(x), [3, 3, 6], letter)
            text = bytearray(b"rank %d" % comm.rank)
            whole = bytearray(6 * comm.size)
            comm.all_gather(bytes(text), memoryview(whole))
            self.assertEqual(whole, b"rank 0rank 1rank 2")

        on_threads(3, body)

    def test_nothing_is_a_fine_count(self):
        def body(comm):
            for letter in "bBiIlLqQfd":
                comm.all_reduce(array.array(letter))
            counts = [0] * (comm.size - 1) + [2]
            out = array.array("i", [0, 0])
            comm.all_gather(array.array("i", [7, 8] if counts[comm.rank] else []), out, counts)
            self.assertEqual(list(out), [7, 8])
            one = array.array("i", [1])
            comm.all_reduce(one)
            self.assertEqual(one[0], comm.size)

        on_threads(3, body)

    def test_any_algorithm_and_deadline_may_be_asked_for(self):
        def body(comm):
            for algorithm in ("auto", "flat", "ring", "recursive_doubling", "circulant", "two_shot"):
                x = array.array("q", range(50))
                comm.all_reduce(x, "product", algorithm=algorithm, timeout=10)
                self.assertEqual(list(x), [i ** comm.size for i in range(50)])

        on_threads(3, body)


if __name__ == "__main__":
    unittest.main()
