"""What gradsync has to reach, checked row by row.

Times faster than the best peer (at least), and times the bound (at most); for memory that gradsync allocated and for the
program's own.
"""

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Target:
    def __init__(self, transports, ranks, sizes, memory, faster=None, bound=None):
        self.transports, self.ranks, self.sizes, self.memory = transports, ranks, sizes, memory
        self.faster, self.bound = faster, bound

    def covers(self, row):
        return row["transport"] in self.transports and row["ranks"] in self.ranks and self.sizes[0] <= row["bytes"] <= self.sizes[1]


TARGETS = [
    Target(["shm"], [2], (0, KIB), "registered", faster=1.3, bound=2.0),
    Target(["shm"], [2], (4 * KIB, 64 * KIB), "registered", faster=2.0, bound=2.0),
    Target(["shm"], [2], (256 * KIB, 256 * MIB), "registered", faster=2.0, bound=1.25),
    Target(["shm"], [2], (0, GIB), "own", faster=1.0),
    Target(["shm"], [2], (64 * MIB, GIB), "own", faster=1.3),
    Target(["shm"], [4, 8], (0, 16 * KIB), "registered", faster=1.3),
    Target(["shm"], [4, 8], (256 * KIB, GIB), "registered", faster=2.3, bound=1.6),
    Target(["tcp"], [2], (0, 16 * KIB), "registered", faster=1.0),
    Target(["tcp"], [2, 4, 8], (MIB, GIB), "registered", faster=1.3),
    Target(["ns-1g"], [4, 8], (0, KIB), "registered", faster=1.3),
    Target(["ns-1g"], [2, 4, 8], (4 * MIB, GIB), "registered", faster=1.0, bound=1.03),
    Target(["ns-asym"], [4, 8], (MIB, GIB), "registered", faster=1.35, bound=1.1),
]
NOISE = 0.01  # "no slower" means by no more than medians differ from run to run on a shaped link
START_PROCESSES_MS, START_THREADS_MS = 150.0, 1000.0  # 8 ranks as processes, 64 as threads


def missed(row):
    """-> what this row misses, in words."""
    out = []
    for target in TARGETS:
        if not target.covers(row):
            continue
        faster, over = row.get(f"faster_{target.memory}"), row.get(f"bound_times_{target.memory}")
        if target.faster and faster and faster < target.faster - (NOISE if target.faster == 1.0 else 0):
            out.append(f"{target.memory} {faster:.2f} times as fast, wanted {target.faster:g}")
        if target.bound and over and over > target.bound:
            out.append(f"{target.memory} {over:.2f} times the bound, wanted {target.bound:g}")
    if row.get("cpu_peer") and row["cpu_registered"] > row["cpu_peer"]:
        out.append(f"{row['cpu_registered'] / row['cpu_peer']:.2f} times the processor time of the best peer")
    return out
