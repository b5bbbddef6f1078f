"""Data-parallel training of a line y = a x + b, each rank on its own points: the gradients' mean is all that is shared.

    gradsync run -n 4 -- python3 examples/08_from_python.py
"""
import numpy

import gradsync

with gradsync.create(timeout=60) as comm:
    random = numpy.random.default_rng(comm.rank)
    x = random.uniform(-1, 1, 1000)
    y = 3 * x + 0.5 + random.normal(0, 0.01, 1000)

    parameters = numpy.zeros(2)
    gradients = comm.allocate(2, "float64")  # read by the other ranks of the host where it lies
    for _ in range(200):
        error = parameters[0] * x + parameters[1] - y
        gradients[:] = 2 * numpy.mean(error * x), 2 * numpy.mean(error)
        comm.all_reduce(gradients, op="avg")
        parameters -= 0.3 * gradients

    everyone = numpy.empty((comm.size, 2))
    comm.all_gather(parameters, everyone)
    assert (everyone == parameters).all(), "the replicas have the same bits"
    assert abs(parameters - [3, 0.5]).max() < 0.01, parameters  # noise of 0.01 over 1000 points and more
    print(f"rank {comm.rank}: y = {parameters[0]:.2f} x + {parameters[1]:.2f}")
