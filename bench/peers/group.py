"""The ranks of one contender: started, alive and asleep until told to run all-reduces, ended."""

import array
import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time


class Failed(Exception):
    pass


def processes_of(leaders):
    """Pids of all processes in the sessions of these leaders."""
    found = set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                session = int(file.read().rpartition(")")[2].split()[3])
        except OSError:
            continue
        if session in leaders:
            found.add(int(entry))
    return found


def read_line(link):
    out = b""
    while not out.endswith(b"\n"):
        c = link.recv(1)
        if not c:
            raise Failed("a rank hung up")
        out += c
    return out.decode()


def read_bytes(link, count):
    out = bytearray()
    while len(out) < count:
        part = link.recv(count - len(out))
        if not part:
            raise Failed("a rank hung up")
        out += part
    return bytes(out)


class Hello:
    def __init__(self, line):
        words = line.split()
        self.rank, self.pid = int(words[2]), int(words[4])
        self.joined_ns, self.first_ns, self.descriptors_joined, self.descriptors_first = map(int, words[5:9])


class Group:
    """`commands`: (words, further environment) of each process to start: one if it is a launcher, else one a rank."""

    def __init__(self, label, ranks, commands, library, start_timeout=60):
        self.label, self.ranks, self.start_timeout = label, ranks, start_timeout
        self.processes, self.hellos, self.links = [], {}, {}
        self.folder = tempfile.mkdtemp(prefix="peers-")
        self.memory = tempfile.mkdtemp(prefix="peers-", dir="/dev/shm")
        self.log = open(os.path.join(self.folder, "log"), "w+")
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.bind(os.path.join(self.folder, "driver"))
        self.server.listen(128)
        environment = dict(
            os.environ, BENCH_SOCKET=os.path.join(self.folder, "driver"), BENCH_BARRIER=os.path.join(self.memory, "barrier"),
            BENCH_STORE=self.folder, BENCH_RANKS=str(ranks), BENCH_LIBRARY=library, OMP_NUM_THREADS="1",
            PYTHONDONTWRITEBYTECODE="1")
        self.started_ns = time.monotonic_ns()
        try:
            for words, further in commands(self.folder):
                self.processes.append(subprocess.Popen(
                    words, env={**environment, **further}, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                    start_new_session=True))
        except BaseException:
            self.close()
            raise

    def meet(self):
        """Waits until every rank has joined."""
        until = time.monotonic() + self.start_timeout
        self.server.settimeout(1)
        while len(self.links) < self.ranks:
            try:
                link, _ = self.server.accept()
                link.settimeout(self.start_timeout)
                hello = Hello(read_line(link))
                self.links[hello.rank], self.hellos[hello.rank] = link, hello
            except socket.timeout:
                pass
            if time.monotonic() > until or any(p.poll() is not None for p in self.processes):
                raise Failed(f"{self.label} did not start: {self.tail()}")
        return self

    def start_ms(self):
        """-> from the first process's start to the last rank's joining, and to the end of the first all-reduce."""
        return tuple((max(getattr(h, at) for h in self.hellos.values()) - self.started_ns) / 1e6 for at in ("joined_ns", "first_ns"))

    def tail(self):
        self.log.flush()
        with open(self.log.name) as file:
            return file.read()[-1500:]

    def waiting_for(self):
        """What the ranks' threads wait for in the kernel: tells a hang from slowness."""
        out = []
        for hello in self.hellos.values():
            try:
                tasks = sorted(os.listdir(f"/proc/{hello.pid}/task"), key=int)
                out.append("+".join(open(f"/proc/{hello.pid}/task/{t}/wchan").read() or "runs" for t in tasks[:4]))
            except OSError:
                out.append("gone")
        return out

    def run(self, way, nbytes, warm_up, iterations, barrier, timeout=60):
        """-> (µs of each iteration, processor seconds of all ranks, wrong results)

        An iteration lasts from when the last rank was ready (the barrier's release, or without one the latest start) to
        when the last rank has its result.
        """
        stamps, cpu, wrong = [], 0, 0
        links = [self.links[r] for r in range(self.ranks)]
        try:
            for link in links:
                link.settimeout(timeout)
                link.sendall(f"run {way} {nbytes} {warm_up} {iterations} {int(barrier)}\n".encode())
            for link in links:
                head = read_line(link).split()
                if head[0] != "ok":
                    raise Failed(" ".join(head))
                stamps.append(array.array("q", read_bytes(link, int(head[1]) * 24)))
                cpu += int(head[2])
                wrong += int(head[3])
        except (OSError, Failed) as e:
            raise Failed(f"{self.label} {way} {nbytes}: {e!r}; threads: {self.waiting_for()}; log: {self.tail()}") from e
        times = []
        for i in range(iterations):
            begin = stamps[0][3 * i] if barrier else max(s[3 * i + 1] for s in stamps)
            times.append(max(0.001, (max(s[3 * i + 2] for s in stamps) - begin) / 1e3))
        return times, cpu / 1e9, wrong

    def close(self):
        for link in self.links.values():
            try:
                link.sendall(b"quit\n")
                link.close()
            except OSError:
                pass
        until = time.monotonic() + 5
        for p in self.processes if self.links else ():
            try:
                p.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        # Each process was made the leader of a session: what is left in it is ours. A launcher's ranks may be in sessions
        # of their own, and told their pids.
        for pid in {h.pid for h in self.hellos.values()} | processes_of({p.pid for p in self.processes}):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for p in self.processes:
            p.wait()
        self.server.close()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)


def percentile(ordered, q):
    """Nearest rank: an observed value, never one between two."""
    return ordered[min(len(ordered) - 1, max(0, round(q * (len(ordered) - 1))))]


class Series:
    """All samples of one contender at one size, pooled over the rounds."""

    def __init__(self):
        self.times, self.cpu, self.wrong = [], 0.0, 0

    def add(self, times, cpu, wrong):
        self.times += times
        self.cpu += cpu
        self.wrong += wrong

    def figures(self, nbytes):
        ordered = sorted(self.times)
        return {"iterations": len(ordered), "us": statistics.median(ordered), "us_mean": statistics.mean(ordered),
                "us_p10": percentile(ordered, .1), "us_p90": percentile(ordered, .9),
                "cpu_s_per_GB": self.cpu / len(ordered) / (nbytes / 1e9) if nbytes else 0.0, "wrong": self.wrong}
