"""One rank of the overlap benchmark: PyTorch's DistributedDataParallel over Gloo, on the models of overlap_rank.cpp.

    peer_rank.py MODEL BATCH FILE      rank and size from RANK and WORLD_SIZE; FILE is where the ranks meet

Reads lines "WAY STEPS", answers with JSON lines. Ways: local, backward (DDP's only overlap), exchange.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def conv(inputs, outputs, kernel, stride):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first, self.first_norm = conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.second, self.second_norm = conv(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs)
        self.skip = None
        if stride != 1 or inputs != outputs:
            self.skip = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.second_norm(self.second(torch.relu(self.first_norm(self.first(x)))))
        return torch.relu(y + (x if self.skip is None else self.skip(x)))


def resnet18():
    layers, inputs = [conv(3, 64, 3, 1), nn.BatchNorm2d(64), nn.ReLU()], 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def mlp():
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024),
                         nn.ReLU(), nn.Linear(1024, 10))


class Rank:
    def __init__(self, model, batch):
        make = mlp if model == "mlp" else resnet18
        torch.manual_seed(1)
        self.plain = make()
        self.shared = DistributedDataParallel(make(), broadcast_buffers=False)
        self.x = torch.randn(batch, 512) if model == "mlp" else torch.randn(batch, 3, 32, 32)
        self.y = torch.randint(0, 10, (batch,))
        self.loss = nn.CrossEntropyLoss()
        self.optimizers = {m: torch.optim.SGD(m.parameters(), lr=0.01) for m in (self.plain, self.shared)}
        self.count = sum(p.numel() for p in self.plain.parameters())
        bucket = 25 * (1 << 20) // 4
        self.buckets = [torch.ones(min(bucket, self.count - at)) for at in range(0, self.count, bucket)]

    def train(self, model):
        self.optimizers[model].zero_grad()
        self.loss(model(self.x), self.y).backward()
        self.optimizers[model].step()

    def step(self, way):
        if way == "exchange":
            for bucket in self.buckets:
                dist.all_reduce(bucket)
        else:
            self.train(self.plain if way == "local" else self.shared)

    def run(self, way, steps):
        dist.barrier()
        start = time.monotonic()
        for _ in range(steps):
            self.step(way)
        seconds = (time.monotonic() - start) / steps
        dist.barrier()
        return {"way": way, "ms": seconds * 1e3}


def main():
    model, batch, meeting = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]))
    rank = Rank(model, batch)
    print(json.dumps({"bytes": rank.count * 4, "torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        way, steps = line.split()
        print(json.dumps(rank.run(way, int(steps))), flush=True)
    os._exit(0)


main()
