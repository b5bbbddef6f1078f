"""An ordinary PyTorch DistributedDataParallel program. The two lines marked make it run over gradsync.

    gradsync run -n 2 -- python3 train_ddp.py
    torchrun --nproc_per_node 2 train_ddp.py                   # Debian 12's: add --redirects 1 --tee 1
    torchrun --nproc_per_node 2 train_ddp.py --backend gloo    # the same program over Gloo

Learns to tell two interleaved spirals apart.
"""

import argparse
import math
import os

import gradsync.torch  # noqa: F401: (1) makes the backend known; PyTorch 2 finds it by itself
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def spirals(count):
    generator = torch.Generator().manual_seed(0)
    label = torch.arange(count) % 2
    radius = torch.rand(count, generator=generator).sqrt()
    angle = 5 * radius + math.pi * label
    noise = 0.02 * torch.randn(count, 2, generator=generator)
    return TensorDataset(torch.stack((radius * angle.cos(), radius * angle.sin()), 1) + noise, label)


def train(model, loader, sampler, optimizer, epochs):
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)  # loss, samples
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(x), len(x)])
        dist.all_reduce(total)
        if dist.get_rank() == 0 and epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {total[0] / total[1]:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gradsync")  # (2) the name
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()

    dist.init_process_group(args.backend)
    torch.manual_seed(0)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // dist.get_world_size()))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)))
    data = spirals(4096)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    train(model, loader, sampler, torch.optim.Adam(model.parameters(), lr=3e-3), args.epochs)

    with torch.no_grad():
        x, y = data.tensors
        right = (model.module(x).argmax(1) == y).float().mean()
    print(f"rank {dist.get_rank()}: {right:.1%} right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
