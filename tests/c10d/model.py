"""What collectives must give, computed in one process, exactly: the values are small whole numbers, so that every sum is exact in
every element type, and the one division of an average is rounded once."""
import torch
import torch.distributed as dist

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = INTEGERS + FLOATS + [torch.bool] + COMPLEX
OPERATORS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"]
FACTOR = 0.5


def operator(name):
    return dist._make_nccl_premul_sum(FACTOR) if name == "PREMUL_SUM" else getattr(dist.ReduceOp, name)


def supported(name, dtype):
    if dtype.is_complex:
        return name in ("SUM", "AVG", "PREMUL_SUM")
    if dtype.is_floating_point:
        return not name.startswith("B")
    if name == "PREMUL_SUM":
        return False
    return not (dtype == torch.bool and name == "AVG")


def values(rank, shape, dtype):
    """What the rank brings: the n-th element depends on n, whatever the layout of the tensor it is put in."""
    count = int(torch.tensor(shape).prod()) if len(shape) else 1
    numbers = torch.arange(count) % 5 + rank
    if dtype.is_complex:
        return torch.complex(numbers.double(), numbers.double() - 3).to(dtype).reshape(shape)
    if dtype == torch.bool:
        return (numbers % 2 == 0).reshape(shape)
    return numbers.to(dtype).reshape(shape)


def _fold(parts, pair):
    result = parts[0]
    for part in parts[1:]:
        result = pair(result, part)
    return result


def reduced(name, parts):
    """The reduction of the tensors, in their element type."""
    dtype = parts[0].dtype
    if dtype == torch.bool:
        pairs = {"SUM": torch.logical_or, "MAX": torch.logical_or, "BOR": torch.logical_or, "PRODUCT": torch.logical_and,
                 "MIN": torch.logical_and, "BAND": torch.logical_and, "BXOR": torch.logical_xor}
        return _fold(parts, pairs[name])
    if dtype.is_complex:
        return torch.view_as_complex(reduced_wide(name, [torch.view_as_real(part.to(torch.complex128)) for part in parts])).to(dtype)
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    return reduced_wide(name, [part.to(wide) for part in parts]).to(dtype)


def reduced_wide(name, parts):
    if name == "PREMUL_SUM":
        return sum(parts) * FACTOR
    if name == "AVG":
        return torch.div(sum(parts), len(parts), rounding_mode=None if parts[0].is_floating_point() else "trunc")
    pairs = {"SUM": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
             "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
    return _fold(parts, pairs[name])


# A layout puts values into a tensor that lies differently in memory.
def contiguous(x):
    return x.clone()


def transposed(x):
    return x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else x.clone()


def sliced(x):
    wide = torch.zeros(x.shape + (2,), dtype=x.dtype)
    view = wide[..., 1]
    view.copy_(x)
    return view


def at_an_offset(x):
    whole = torch.zeros(x.numel() + 3, dtype=x.dtype)
    view = whole[3:].view(x.shape)
    view.copy_(x)
    return view


def channels_last(x):
    if x.dim() != 4:
        return x.clone()
    return x.clone().contiguous(memory_format=torch.channels_last)


def mixed(rank):
    """Another layout on every rank."""
    return [contiguous, channels_last, transposed, sliced][rank % 4]


LAYOUTS = [contiguous, transposed, sliced, at_an_offset, channels_last]
SHAPES = [(), (1,), (0,), (7,), (3, 0, 2), (4, 6), (2, 3, 4, 5)]


def same(a, b):
    """Equal in shape, type and value."""
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.resolve_conj(), b.resolve_conj())
