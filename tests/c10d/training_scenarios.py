"""What people train with DistributedDataParallel, as small deterministic scenarios that know nothing of a backend.

Each scenario is a function of (rank, world) that trains and returns {name: tensor}: losses, gradients after every step, and the
parameters at the end. A process group exists already.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
BATCH = 4


def batches(rank, shape, classes, count=STEPS, seed=7):
    """This rank's share of the data: the same for every backend, different for every rank."""
    generator = torch.Generator().manual_seed(seed * 1000 + rank)
    for _ in range(count):
        yield torch.randn(BATCH, *shape, generator=generator), torch.randint(classes, (BATCH,), generator=generator)


def mlp():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 300), nn.ReLU(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 5))


def cnn():
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2),
                         nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))


def dense(gradient):
    return gradient.to_dense() if gradient.is_sparse else gradient


class Record:
    """Losses, gradients of every step, parameters and buffers at the end."""

    def __init__(self):
        self.seen = {}

    def step(self, number, loss, model):
        self.seen[f"loss {number}"] = loss.detach().clone()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                self.seen[f"gradient {number} {name}"] = dense(parameter.grad).detach().clone()

    def end(self, model):
        self.seen.update({f"end {name}": value.detach().clone() for name, value in model.state_dict().items()})
        return self.seen


def train(ddp, data, classes_loss=nn.functional.cross_entropy, forward=None, optimizer=None):
    record = Record()
    optimizer = optimizer or torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    for number, (x, y) in enumerate(data):
        optimizer.zero_grad()
        loss = classes_loss((forward or ddp)(x), y)
        loss.backward()
        record.step(number, loss, ddp.module)
        optimizer.step()
    return record.end(ddp.module)


def plain_mlp(rank, world):
    return train(DistributedDataParallel(mlp(), bucket_cap_mb=0.1), batches(rank, (12,), 5))


def convolutions(rank, world):
    return train(DistributedDataParallel(cnn()), batches(rank, (3, 9, 9), 5))


def channels_last(rank, world):
    ddp = DistributedDataParallel(cnn().to(memory_format=torch.channels_last))
    data = ((x.contiguous(memory_format=torch.channels_last), y) for x, y in batches(rank, (3, 9, 9), 5))
    return train(ddp, data)


def doubles(rank, world):
    return train(DistributedDataParallel(mlp().double()), ((x.double(), y) for x, y in batches(rank, (12,), 5)))


def gradients_as_views(rank, world):
    return train(DistributedDataParallel(mlp(), gradient_as_bucket_view=True), batches(rank, (12,), 5))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.EmbeddingBag(50, 8, mode="sum", sparse=True)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        return self.out(self.table(x))


def sparse_embedding(rank, world):
    generator = torch.Generator().manual_seed(50 + rank)
    data = [(torch.randint(50, (BATCH, 3), generator=generator), torch.randint(5, (BATCH,), generator=generator)) for _ in range(STEPS)]
    ddp = DistributedDataParallel(Words())
    return train(ddp, data, optimizer=torch.optim.SGD(ddp.parameters(), lr=0.05))


def accumulation_without_sync(rank, world):
    ddp, record = DistributedDataParallel(mlp()), Record()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    data = list(batches(rank, (12,), 5))
    for number in range(0, STEPS, 2):
        optimizer.zero_grad()
        with ddp.no_sync():
            nn.functional.cross_entropy(ddp(data[number][0]), data[number][1]).backward()
        loss = nn.functional.cross_entropy(ddp(data[number + 1][0]), data[number + 1][1])
        loss.backward()
        record.step(number, loss, ddp.module)
        optimizer.step()
    return record.end(ddp.module)


class Branches(nn.Module):
    """One branch a step is used, a different one on each rank, and one never."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second, self.never, self.out = (nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 5))

    def forward(self, x, which):
        return self.out(torch.relu((self.first if which else self.second)(x)))


def unused_parameters(rank, world):
    ddp, record = DistributedDataParallel(Branches(), find_unused_parameters=True), Record()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for number, (x, y) in enumerate(batches(rank, (6,), 5)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(x, (number // 2 + rank) % 2 == 0), y)
        loss.backward()
        record.step(number, loss, ddp.module)
        optimizer.step()
    return record.end(ddp.module)


def power_sgd(rank, world):
    ddp = DistributedDataParallel(mlp())
    state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=2, start_powerSGD_iter=2,
                                        min_compression_rate=0.5)
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(ddp, batches(rank, (12,), 5))


def half_precision_hook(rank, world):
    ddp = DistributedDataParallel(mlp())
    ddp.register_comm_hook(dist.group.WORLD, default_hooks.fp16_compress_hook)
    return train(ddp, batches(rank, (12,), 5))


def uneven_inputs(rank, world):
    ddp, record = DistributedDataParallel(mlp()), Record()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    with Join([ddp]):
        for number, (x, y) in enumerate(batches(rank, (12,), 5, count=2 + 2 * rank)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ddp(x), y)
            loss.backward()
            record.step(number, loss, ddp.module)
            optimizer.step()
    return record.end(ddp.module)


SCENARIOS = {function.__name__: function for function in (
    plain_mlp, convolutions, channels_last, doubles, gradients_as_views, sparse_embedding, accumulation_without_sync,
    unused_parameters, power_sgd, half_precision_hook, uneven_inputs)}
