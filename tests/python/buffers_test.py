"""What memory a call may work on: arrays that are not contiguous, DLPack tensors, and what is refused."""
import array
import ctypes
import unittest

import gradsync
from support import needs_numpy, numpy, on_threads

try:
    import torch
except ImportError:
    torch = None
needs_torch = unittest.skipIf(torch is None, "no torch")


def alone():
    return gradsync.threads(1)[0]


class Pair(unittest.TestCase):
    """Bodies run on two ranks; sums of equal values are twice the value."""

    def both(self, body):
        on_threads(2, body)


@needs_numpy
class NumPyLayouts(Pair):
    def test_a_result_lands_in_an_array_that_is_not_contiguous(self):
        def body(comm):
            whole = numpy.arange(24, dtype="float32").reshape(4, 6)
            before = whole.copy()
            comm.all_reduce(whole[:, ::2])
            numpy.testing.assert_array_equal(whole[:, ::2], 2 * before[:, ::2])
            numpy.testing.assert_array_equal(whole[:, 1::2], before[:, 1::2])

        self.both(body)

    def test_elements_correspond_by_index_whatever_the_layout(self):
        def body(comm):
            x = numpy.arange(12, dtype="int32").reshape(3, 4)
            mine = numpy.asfortranarray(x) if comm.rank == 1 else x
            comm.all_reduce(mine)
            numpy.testing.assert_array_equal(mine, 2 * numpy.arange(12).reshape(3, 4))

        self.both(body)

    def test_reversed_and_transposed_inputs_are_read_in_their_own_order(self):
        def body(comm):
            x = numpy.arange(6, dtype="int64").reshape(2, 3)
            out = numpy.empty(12, "int64")
            comm.all_gather(x.T[::-1], out)
            numpy.testing.assert_array_equal(out.reshape(2, 3, 2)[comm.rank], x.T[::-1])
            numpy.testing.assert_array_equal(x, numpy.arange(6).reshape(2, 3))

        self.both(body)

    def test_an_output_that_a_call_leaves_alone_stays_as_it_was(self):
        def body(comm):
            wide = numpy.arange(8, dtype="int32")
            comm.reduce(numpy.ones(4, "int32"), root=0, out=wide[::2])
            expected = [2, 1, 2, 3, 2, 5, 2, 7] if comm.rank == 0 else list(range(8))
            self.assertEqual(wide.tolist(), expected)

        self.both(body)

    def test_an_asynchronous_result_has_landed_when_done_says_so(self):
        def body(comm):
            wide = numpy.ones(8, "int32")
            work = comm.all_reduce(wide[::2], async_op=True)
            work.wait()
            self.assertTrue(work.done())
            self.assertEqual(wide.tolist(), [2, 1, 2, 1, 2, 1, 2, 1])

        self.both(body)

    def test_scalars_of_no_dimension_and_empty_arrays(self):
        def body(comm):
            x = numpy.array(3.5)
            comm.all_reduce(x)
            self.assertEqual(x, 7)
            comm.all_reduce(numpy.empty((0, 3), "float32"))
            comm.all_reduce(numpy.empty((3, 0), "float32")[::2])

        self.both(body)

    def test_a_read_only_array_may_be_an_input(self):
        def body(comm):
            x, out = numpy.ones(3, "float32"), numpy.zeros(3, "float32")
            x.flags.writeable = False
            comm.all_reduce(x, out=out)
            self.assertEqual(out.tolist(), [2, 2, 2])

        self.both(body)


@needs_numpy
class NumPyRefusals(unittest.TestCase):
    def test_a_read_only_output(self):
        x = numpy.ones(3, "float32")
        x.flags.writeable = False
        with self.assertRaisesRegex(gradsync.InvalidArgumentError, "the output, a ndarray, is read-only"):
            alone().all_reduce(x)

    def test_element_types_that_are_not_supported_are_named(self):
        for dtype in ("int16", "complex64", "U3", "datetime64[s]", "object", "float128"):
            with self.assertRaisesRegex(gradsync.UnsupportedError, "elements are .*supported are f16, bf16"):
                alone().all_reduce(numpy.zeros(3, dtype))
        with self.assertRaisesRegex(NotImplementedError, "elements are int16"):
            alone().all_reduce(numpy.zeros(3, "int16"))

    def test_the_other_byte_order(self):
        with self.assertRaisesRegex(gradsync.UnsupportedError, "other byte order"):
            alone().all_reduce(numpy.zeros(3, ">f4"))

    def test_what_has_no_memory(self):
        for thing in ([1.0, 2.0], 3.0, None, "text", object()):
            with self.assertRaises((TypeError, gradsync.Error)):
                alone().all_gather(thing, numpy.zeros(2))
        with self.assertRaisesRegex(TypeError, "a list has no memory to work on, expected a NumPy array"):
            alone().all_reduce([1.0])

    def test_lengths_and_types_that_do_not_fit(self):
        with self.assertRaisesRegex(gradsync.InvalidArgumentError, "the output holds 3 elements, expected 2"):
            alone().all_reduce(numpy.zeros(2), out=numpy.zeros(3))
        with self.assertRaisesRegex(gradsync.InvalidArgumentError, "the input is f64, the output is f32"):
            alone().all_reduce(numpy.zeros(2), out=numpy.zeros(2, "f4"))
        both = numpy.zeros(5)
        with self.assertRaisesRegex(gradsync.InvalidArgumentError, "overlap by"):
            alone().all_reduce(both[:4], out=both[1:])

    def test_a_failed_call_leaves_the_communicator_as_it_was(self):
        comm, x = alone(), numpy.ones(2)
        with self.assertRaises(gradsync.Error):
            comm.all_reduce(x, "xor")
        comm.all_reduce(x)
        comm.check()


class BufferProtocol(Pair):
    def test_memory_of_the_standard_library(self):
        def body(comm):
            numbers = (ctypes.c_double * 4)(1, 2, 3, 4)
            comm.all_reduce(numbers)
            self.assertEqual(list(numbers), [2, 4, 6, 8])
            flags = memoryview(bytearray(3)).cast("?")
            flags[comm.rank] = True
            comm.all_reduce(flags)
            self.assertEqual(flags.tolist(), [True, True, False])
            part = array.array("i", range(6))
            comm.all_reduce(memoryview(part)[2:4])
            self.assertEqual(list(part), [0, 1, 4, 6, 4, 5])

        self.both(body)

    def test_an_output_that_is_read_only(self):
        with self.assertRaisesRegex(gradsync.InvalidArgumentError, "the output, a bytes, is read-only"):
            alone().broadcast(b"text")

    def test_formats_that_are_not_supported(self):
        with self.assertRaisesRegex(gradsync.UnsupportedError, "elements are 'h' of 2 bytes, supported are"):
            alone().all_reduce(array.array("h", [1]))
        with self.assertRaisesRegex(gradsync.UnsupportedError, "other byte order"):
            alone().all_reduce((ctypes.c_int32.__ctype_be__ * 3)())

    def test_memory_cannot_be_resized_under_a_call(self):
        def body(comm):
            if comm.rank == 1:
                comm.recv(bytearray(1), source=0)
                comm.send(b"abc", dest=0)
                return
            x = bytearray(3)
            work = comm.irecv(x, source=1)
            with self.assertRaises(BufferError):
                x.extend(b"more")
            comm.send(b"!", dest=1)
            work.wait()
            x.extend(b"more")
            self.assertEqual(x, b"abcmore")

        self.both(body)

    @needs_numpy
    def test_strided_views_work_where_numpy_is(self):
        def body(comm):
            x = array.array("i", range(6))
            comm.all_reduce(memoryview(x)[::2])
            self.assertEqual(list(x), [0, 1, 4, 3, 8, 5])

        self.both(body)


class OnDevice:
    """An exporter whose memory is not the host's."""

    def __dlpack_device__(self):
        return 2, 1

    def __dlpack__(self, **_):
        raise AssertionError("nobody should ask")


class DLPack(Pair):
    def test_memory_of_a_gpu_is_refused_and_the_supported_devices_named(self):
        with self.assertRaisesRegex(gradsync.UnsupportedError, "the OnDevice is on device CUDA:1, supported: cpu"):
            alone().all_reduce(OnDevice())

    @needs_torch
    def test_tensors_of_torch(self):
        def body(comm):
            for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8,
                          torch.int32, torch.int64):
                x = torch.ones(5, dtype=dtype)
                comm.all_reduce(x)
                self.assertEqual(x.tolist(), [2] * 5, dtype)

        self.both(body)

    @needs_torch
    @needs_numpy
    def test_a_result_lands_in_a_strided_tensor(self):
        def body(comm):
            x = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
            comm.all_reduce(x.t()[1:])
            self.assertEqual(x.tolist(), [[0, 2, 4, 6], [4, 10, 12, 14], [8, 18, 20, 22]])

        self.both(body)

    @needs_torch
    def test_what_torch_does_not_export_is_said(self):
        with self.assertRaisesRegex(gradsync.UnsupportedError, "the Tensor does not export its memory"):
            alone().all_reduce(torch.ones(3, requires_grad=True))
        with self.assertRaisesRegex(gradsync.UnsupportedError, "of DLPack type i16"):
            alone().all_reduce(torch.ones(3, dtype=torch.int16))


@needs_numpy
class RegisteredMemory(Pair):
    def test_allocated_arrays_live_as_long_as_they_are_used(self):
        def body(comm):
            x = comm.allocate((100, 50), "float32")
            self.assertEqual((x.shape, x.dtype.name, x.any()), ((100, 50), "float32", False))
            part = x[1:]
            part += comm.rank + 1
            del x
            comm.all_reduce(part)
            self.assertTrue((part == 3).all())
            comm.destroy()
            part += 1  # the memory outlives the communicator
            self.assertTrue((part == 4).all())

        self.both(body)

    def test_shapes_and_types_that_cannot_be(self):
        self.assertEqual(alone().allocate(0).shape, (0,))
        with self.assertRaisesRegex(gradsync.InvalidArgumentError, "the shape is"):
            alone().allocate((2, -1))
        with self.assertRaisesRegex(gradsync.UnsupportedError, "references"):
            alone().allocate(3, object)
        with self.assertRaises(gradsync.Error):
            alone().allocate(1 << 61)


if __name__ == "__main__":
    unittest.main()
