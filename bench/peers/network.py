"""Hosts as network namespaces of this machine, joined by a bridge in one of its own.

Each link can be limited by tc tbf, both ways: going out at the host's end, coming in at the bridge's end.
"""

import os
import subprocess

BURST = 128 << 10  # of tbf: two of the largest packets
QUEUE = 1 << 20  # behind it, as in a switch's port
CONGESTION = "cubic"  # whatever the machine's default is


def sh(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


class Allowed:
    """Lets namespaces use a congestion control that the machine keeps to itself, for as long as they are made."""

    FILE = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"

    def __enter__(self):
        with open(self.FILE) as file:
            self.before = file.read().strip()
        if CONGESTION not in self.before.split():
            self.write(self.before + " " + CONGESTION)

    def __exit__(self, *_):
        if CONGESTION not in self.before.split():
            self.write(self.before)

    def write(self, text):
        with open(self.FILE, "w") as file:
            file.write(text)


class Network:
    """Hosts 0 … count-1 at 10.77.0.1 and up. `rates[r]` is host r's rate in Mbit/s; None: not limited."""

    made = 0

    def __init__(self, count, rates=None):
        Network.made += 1
        self.prefix = f"gsp{os.getpid()}x{Network.made}-"
        self.names = []
        try:
            with Allowed():
                switch = self.namespace(self.prefix + "sw")
                sh("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
                sh("ip", "-n", switch, "link", "set", "bridge", "up")
                for host in range(count):
                    self.plug(switch, host, rates[host] if rates else None)
        except BaseException:
            self.close()
            raise

    def namespace(self, name):
        sh("ip", "netns", "add", name)
        self.names.append(name)
        sh("ip", "-n", name, "link", "set", "lo", "up")
        sh("ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={CONGESTION}")
        return name

    def plug(self, switch, host, mbit):
        name, port = self.namespace(self.prefix + str(host)), f"port{host}"
        sh("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        sh("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
        sh("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        sh("ip", "-n", name, "link", "set", "eth0", "up")
        for where, device in ((name, "eth0"), (switch, port)) if mbit else ():
            sh("tc", "-n", where, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{mbit}mbit", "burst", str(BURST),
               "limit", str(QUEUE))

    @staticmethod
    def address(host):
        return f"10.77.0.{host + 1}"

    def enter(self, host):
        """The words before a command that runs it on that host."""
        return ["ip", "netns", "exec", self.prefix + str(host)]

    def close(self):
        for name in self.names:
            sh("ip", "netns", "del", name, check=False)
        self.names = []
