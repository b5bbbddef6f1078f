"""One rank that runs every scenario under a backend and saves what came out: training_worker.py BACKEND RANK WORLD MEETING OUT"""

import datetime
import os
import sys

import torch
import torch.distributed as dist

from training_scenarios import SCENARIOS


def main(backend, rank, world, meeting, out):
    if backend == "gradsync":
        import gradsync.torch  # noqa: F401: registers the backend
    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60))
    found = {name: scenario(rank, world) for name, scenario in SCENARIOS.items()}
    dist.destroy_process_group()
    torch.save(found, out + ".part")
    os.rename(out + ".part", out)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
