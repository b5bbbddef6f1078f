"""Lower bounds of the time of an all-reduce, from limits measured in the same run.

S bytes a rank, N ranks, C cores; h one hop's best latency, w a change of processes on a core.

  any   h * ceil(log2 N), since what every rank knows at most doubles with a hop; where N > C also (N/C - 1) * w, since each of
        a core's ranks must get to run
  shm   M(N, S): two pinned threads read each element of N mapped buffers once and write its sum to each. Each buffer was
        filled by the core that owns it, so traffic between cores is in it. Plain stores, non-temporal ones, or a block at
        a time: whichever is fastest
  tcp   2(N-1) S / A: a reduction with no help from the network moves at least 2(N-1) S bytes in all; A is the most that
        loopback TCP delivered on all cores at once
  ns-   the same, with A of links without limits; and with b_r the payload rate of host r (1448 bytes of each frame of 1514)
        S / b_r for each r, since its data has to leave and the sum has to arrive, and 2(N-1) S / sum of b_r. With equal links
        that is the ring's 2(N-1)/N S/b; with one slow host it is far below the ring's
"""

import math
import os

MAPPED = ("mapped", "mapped_nt", "mapped_blocks")
LEAST_BYTES = 4096  # below, M is a matter of tens of nanoseconds and of the clock


class Bounds:
    def __init__(self, limits, rates):
        self.limits, self.rates = limits, rates

    def least(self, name, of):
        return self.limits[(name, of)]

    def synchronising(self, transport, ranks, turns):
        """`turns`: medians of this setting's own turns, {way: µs}."""
        cores = os.cpu_count() or 1
        hop = turns["hop"] if transport == "shm" else self.least("tcp_latency", "lo" if transport == "tcp" else "ns-open")
        switches = (ranks / cores - 1) * turns["switch"] if ranks > cores else 0.0
        return hop * math.ceil(math.log2(ranks)) + switches

    def us(self, transport, ranks, nbytes, turns):
        low = self.synchronising(transport, ranks, turns)
        if transport == "shm":
            return max(low, min((turns[way] for way in MAPPED if way in turns), default=0.0))
        moved = 2 * (ranks - 1) * nbytes
        where = "lo" if transport == "tcp" else "ns-open"
        most = max(v for (n, of), v in self.limits.items() if n.startswith("tcp_") and n != "tcp_latency" and of.startswith(where))
        low = max(low, moved / most / 1e3)
        if self.rates:
            payload = [r / 8 * 1448 / 1514 for r in self.rates]  # Mbit/s -> bytes a µs
            low = max(low, nbytes / min(payload), moved / sum(payload))
        return low
