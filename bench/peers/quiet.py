"""Whether the machine does something else: a benchmark beside a compiler measures the compiler."""

import os
import time

WINDOW_S = 0.25
MOST = 0.06  # of all cores


def busy_s():
    with open("/proc/stat") as file:
        fields = [int(x) for x in file.readline().split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")  # without idle and iowait


def foreign_share():
    """Of all cores' time; to be called while every rank sleeps."""
    before = busy_s()
    time.sleep(WINDOW_S)
    return (busy_s() - before) / WINDOW_S / (os.cpu_count() or 1)


def wait(patience_s):
    """Waits for the machine to be idle, at most so long. -> the share that others took at the end."""
    until = time.monotonic() + patience_s
    share = foreign_share()
    while share > MOST and time.monotonic() < until:
        share = foreign_share()
    return share
