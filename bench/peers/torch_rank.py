"""PyTorch's c10d with the gloo backend: the loop of rank.cpp, in Python."""

import ctypes
import os
import socket

import torch
import torch.distributed as dist


def library():
    lib = ctypes.CDLL(os.environ["BENCH_LIBRARY"])
    lib.bench_barrier.restype = lib.bench_now.restype = lib.bench_cpu.restype = ctypes.c_int64
    lib.bench_fill.argtypes = lib.bench_is_sum.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    return lib


def run(lib, nbytes, warm_up, iterations, with_barrier):
    count = nbytes // 4
    tensor = torch.zeros(max(count, 1))
    data = tensor.data_ptr()
    stamps, used, wrong = [], 0, 0
    lib.bench_barrier()
    first = lib.bench_cpu()
    for i in range(warm_up + iterations):
        shift = i * 17
        lib.bench_fill(data, count, shift)
        release = lib.bench_barrier() if with_barrier else 0
        before = lib.bench_cpu() if with_barrier else 0
        start = lib.bench_now()
        dist.all_reduce(tensor)
        end = lib.bench_now()
        if with_barrier and i >= warm_up:
            used += lib.bench_cpu() - before
        wrong += not lib.bench_is_sum(data, count, shift)
        if i >= warm_up:
            stamps += [release, start, end]
    if not with_barrier:
        used = (lib.bench_cpu() - first) * iterations // max(1, warm_up + iterations)
    lib.bench_barrier()
    return f"ok {iterations} {used} {wrong}\n".encode() + bytes((ctypes.c_int64 * len(stamps))(*stamps))


def main():
    rank, ranks = int(os.environ["BENCH_RANK"]), int(os.environ["BENCH_RANKS"])
    lib = library()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.environ["BENCH_STORE"] + "/torch", rank=rank, world_size=ranks)
    joined, descriptors = lib.bench_now(), lib.bench_descriptors()
    dist.all_reduce(torch.zeros(16))
    first = lib.bench_now()
    hello = f"hello torch {rank} {ranks} {os.getpid()} {joined} {first} {descriptors} {lib.bench_descriptors()}\n"
    lib.bench_open(os.environ["BENCH_BARRIER"].encode(), rank, ranks)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(os.environ["BENCH_SOCKET"])
    link.sendall(hello.encode())
    for line in link.makefile("r"):
        words = line.split()
        if words[0] != "run":
            break
        link.sendall(run(lib, *(int(w) for w in words[2:6])))
    link.close()
    os._exit(0)  # without taking the group down: the driver ends all ranks at once


main()
