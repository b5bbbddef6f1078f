"""How long ranks take to start, and how many descriptors a rank holds after its first all-reduce."""

import statistics
import subprocess

import contenders
import targets
from contenders import OURS, Setting
from group import Failed

FIRST = "own:recursive_doubling"  # ceil(log2 N) partners a rank


def started(setting, peer, rounds, environment):
    """-> medians of `rounds` starts one after another."""
    joined, first, before, after = [], [], [], []
    for _ in range(rounds):
        group = setting.start(peer, environment)
        try:
            group.meet()
            a, b = group.start_ms()
            joined.append(a)
            first.append(b)
            before.append(max(h.descriptors_joined for h in group.hellos.values()))
            after.append(max(h.descriptors_first for h in group.hellos.values()))
        finally:
            group.close()
    return {"joined_ms": statistics.median(joined), "first_ms": statistics.median(first), "descriptors": max(before),
            "descriptors_first": max(after)}


def threads(programs, ranks, rounds):
    out = subprocess.run([programs.path("thread_start"), str(ranks), str(rounds)], capture_output=True, text=True, check=True,
                         timeout=60).stdout.split()
    return {"joined_ms": statistics.median(map(float, out[1::3])), "first_ms": statistics.median(map(float, out[2::3]))}


def judged(row, limit_ms):
    if row["first_ms"] > limit_ms:
        row["missed"] = f"{row['first_ms']:.0f} ms to the end of the first all-reduce, wanted {limit_ms:.0f}"
    return row


def measure(programs, network, quick, fail):
    """-> rows. Processes share this host; the last ones hold to TCP, to count connections."""
    rounds, rows = 3 if quick else 7, []
    shm, tcp = (lambda n: Setting("shm", n, None, programs)), (lambda n: Setting("tcp", n, network, programs))

    def add(who, setting, peer, times, environment=None, limit_ms=None):
        try:
            row = {"kind": "start", "who": who, "ranks": setting.ranks, **started(setting, peer, times, environment)}
            rows.append(judged(row, limit_ms) if limit_ms else row)
        except Failed as e:
            fail(str(e))

    add("gradsync run", shm(8), OURS, rounds, limit_ms=targets.START_PROCESSES_MS)
    give_way = "" if contenders.core_each(8) else "+yield"
    for peer in ("openmpi" + give_way, "mpich"):
        if programs.has(peer):
            add(f"{peer}, mpirun", shm(8), peer, 1 if quick else 3)
    if programs.has("gloo") and network:
        add("gloo, over TCP", tcp(8), "gloo", rounds, {"BENCH_START_ONLY": "1"})
    row = {"kind": "start", "who": "gradsync, threads of one process", "ranks": 64, **threads(programs, 64, rounds)}
    rows.append(judged(row, targets.START_THREADS_MS))
    for ranks in (4, 8, 16, 32) if network else ():
        add("gradsync, TCP, recursive doubling", tcp(ranks), OURS, 1, {"BENCH_FIRST": FIRST})
    return rows
