"""How gradsync and each peer are started, by transport, and which ways of each are measured.

Transports: "shm" (processes of one host; each library chooses how), "tcp" (TCP only, over the loopback of a namespace) and
"ns-…" (TCP, a namespace a rank).
"""

import os

from group import Group

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"  # the one that Debian's python3-torch is for
MIB = 1 << 20
OURS = "gradsync"
LIMIT = "limit"
REGISTERED, OWN = (OURS, "registered"), (OURS, "own")

SEGMENTED_RING = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "5",
                  "--mca", "coll_tuned_allreduce_algorithm_segmentsize", "131072"]
UCX = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]
OB1 = ["--mca", "pml", "ob1", "--mca", "btl", "vader,self"]


def core_each(ranks):
    return ranks <= (os.cpu_count() or 1)


class Programs:
    """What the build has made, and what of the peers is there."""

    def __init__(self, build):
        self.build, self.folder = build, os.path.join(build, "bench", "peers")

    def path(self, name):
        return os.path.join(self.folder, name)

    @property
    def tool(self):
        return os.path.join(self.build, "gradsync")

    @property
    def library(self):
        return self.path("librank_for_python.so")

    def has(self, peer):
        if peer == "torch":
            return os.path.exists("/usr/lib/python3/dist-packages/torch")
        if peer == LIMIT:
            return os.path.exists(self.path("limits"))
        return os.path.exists(self.path(f"{peer.split('-')[0].split('+')[0]}_rank"))


class Setting:
    """One transport with a number of ranks, on the network made for it."""

    def __init__(self, transport, ranks, network, programs):
        self.transport, self.ranks, self.network, self.programs = transport, ranks, network, programs
        self.many_hosts = transport.startswith("ns")

    def place(self, rank):
        """The words before the command of a rank's process."""
        if self.transport == "shm":
            return []
        return self.network.enter(rank if self.many_hosts else 0)

    def interface(self):
        return "eth0" if self.many_hosts else "lo"

    # -- commands: functions of the group's folder, since ranks meet there

    def each(self, words, environment=None):
        """One process a rank, each started by us (Gloo, PyTorch)."""
        address = self.network.address if self.many_hosts else lambda _: "127.0.0.1"
        return lambda folder: [
            ([*self.place(r), *words], {"BENCH_RANK": str(r), "BENCH_ADDRESS": address(r), "GLOO_SOCKET_IFNAME": self.interface(),
                                        **(environment or {})}) for r in range(self.ranks)]

    def gradsync(self, environment=None):
        rank = self.programs.path("gradsync_rank")
        further = dict(environment or {})
        if self.transport != "shm":
            further["GRADSYNC_OPTIONS"] = "transport=tcp"
        if not self.many_hosts:
            words = [*self.place(0), self.programs.tool, "run", "-n", str(self.ranks), "--", rank]
            return lambda folder: [(words, further)]
        return lambda folder: [
            ([*self.place(r), rank], {**further, "GRADSYNC_RANK": str(r), "GRADSYNC_SIZE": str(self.ranks),
                                      "GRADSYNC_RENDEZVOUS": f"host0://{self.network.address(0)}:29400/peers",
                                      "GRADSYNC_OPTIONS": f"transport=tcp,host=host{r}"}) for r in range(self.ranks)]

    def openmpi(self, options):
        # With a launch daemon a host each would bind its only rank to core 0.
        bind = "core" if core_each(self.ranks) and not self.many_hosts else "none"
        words = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", str(self.ranks), "--bind-to", bind, *options]
        environment = {"BENCH_PEER": "openmpi"}
        if self.transport != "shm":
            words += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", self.interface()]
        if self.many_hosts:
            hosts = ",".join(f"{self.network.address(r)}:1" for r in range(self.ranks))
            words += ["--mca", "plm_rsh_agent", os.path.join(HERE, "open_mpi_agent"), "--mca", "oob_tcp_if_include", "eth0",
                      "--map-by", "node", "--host", hosts]
            environment["BENCH_NAMESPACE"] = self.network.prefix
        for name in ("BENCH_SOCKET", "BENCH_BARRIER", "BENCH_PEER"):
            words += ["-x", name]
        command = [*self.place(0), *words, self.programs.path("openmpi_rank")]
        return lambda folder: [(command, environment)]

    def mpich(self):
        words = ["mpirun.mpich", "-n", str(self.ranks), *(["-bind-to", "core"] if core_each(self.ranks) else [])]
        environment = {"BENCH_PEER": "mpich"}
        program = [self.programs.path("mpich_rank")]
        if self.transport != "shm":
            environment.update(UCX_TLS="tcp,self", MPIR_CVAR_NOLOCAL="1", UCX_NET_DEVICES=self.interface())
        if self.many_hosts:
            environment["BENCH_NAMESPACE"] = self.network.prefix
            program = [os.path.join(HERE, "mpich_agent"), *program]
        else:
            words = [*self.place(0), *words]
        return lambda folder: [(words + program, environment)]

    def commands(self, peer, environment=None):
        if peer == OURS:
            return self.gradsync(environment)
        if peer == LIMIT:
            return lambda folder: [([self.programs.path("limits"), "floor"],
                                    {"BENCH_FLOOR_RANKS": str(self.ranks), "BENCH_RANKS": "1"})]
        if peer.startswith("openmpi"):
            options = ["--mca", "mpi_yield_when_idle", "1" if peer.endswith("+yield") else "0"]
            if self.transport == "shm":
                options += UCX if "-ucx" in peer else OB1
            return self.openmpi(options + (SEGMENTED_RING if "-segring" in peer else []))
        if peer == "mpich":
            return self.mpich()
        if peer == "gloo":
            poll = {"BENCH_POLL": "1"} if core_each(self.ranks) else {}
            return self.each([self.programs.path("gloo_rank")], {**poll, **(environment or {})})
        if peer == "torch":
            return self.each([PYTHON, os.path.join(HERE, "torch_rank.py")])
        raise ValueError(peer)

    def start(self, peer, environment=None):
        """-> a Group whose ranks are on their way; `meet` waits for them."""
        return Group(f"{peer}, {self.transport}, {self.ranks} ranks", 1 if peer == LIMIT else self.ranks,
                     self.commands(peer, environment), self.programs.library)


def plan(transport, ranks, quick):
    """[(contender, ways)], in the order in which they take turns.

    More ranks than cores: a peer that polls without giving way waits for the scheduler's tick, so Open MPI is told to give
    way. MPICH (ch4) has no such setting; it, and Open MPI as it comes, are run at a few sizes to show it.
    """
    crowded = not core_each(ranks)
    give_way = "+yield" if crowded else ""
    chosen = [("openmpi" + give_way, ["default"])]
    if transport == "shm":
        chosen += [("openmpi-segring" + give_way, ["default"]), ("openmpi-ucx" + give_way, ["default"])]
    if crowded and not quick:
        chosen += [("openmpi", ["default"])]
    if not (crowded and quick and transport == "shm"):
        chosen += [("mpich", ["default"])]
    if transport != "shm":
        gloo = ["ring", "hd"] + ([] if quick else ["bcube", "ring_chunked"])
        chosen += [("gloo", gloo + ([] if crowded or quick else ["hd_polled", "old_ring_polled"]))]
    elif not quick:
        chosen += [("gloo", ["ring", "hd"])]  # its only transport here is TCP
    if not quick or (transport != "shm" and not crowded):
        chosen += [("torch", ["ring"])]
    return [*chosen, (OURS, [REGISTERED[1], OWN[1]])]


def skipped(contender, way, nbytes, ranks):
    """Runs that are known not to end, or that only show the scheduler's tick again."""
    if way.endswith("_polled") and nbytes > 16 * MIB:
        return True  # both ranks block in a send (old_ring from 64 MiB on, hd at 256 MiB): Gloo hangs
    few = (4, 4096, 65536, MIB, 25 * MIB)
    return not core_each(ranks) and contender in ("openmpi", "mpich") and nbytes not in few
