"""What was measured, as tables, as a line of JSON a row (bench/history.ndjson), and as every contender's figures (TSV)."""

import json
import os
import platform
import subprocess
import time

import targets
from contenders import LIMIT, OURS, OWN, REGISTERED

HERE = os.path.dirname(os.path.abspath(__file__))


def size_name(n):
    for unit, k in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= k:
            return f"{n / k:g} {unit}"
    return f"{n} B"


def short(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= .01 else f"{value:.2g}"


def contender_name(key):
    peer, way = key[0], key[1]
    return peer if way == "default" else f"{peer} {way}"


def rows_of(transport, ranks, series, bound_of):
    """-> one row a size: the best peer, gradsync in both kinds of memory, the bound, and their ratios."""
    rows = []
    for nbytes in sorted({n for peer, _, n in series if peer == OURS}):
        at = {(peer, way): s.figures(nbytes) for (peer, way, n), s in series.items() if n == nbytes and peer != LIMIT and s.times}
        row = {"transport": transport, "ranks": ranks, "bytes": nbytes, "bound_us": bound_of(nbytes),
               "wrong": sum(f["wrong"] for f in at.values())}
        peers = {key: f for key, f in at.items() if key[0] != OURS}
        if peers:
            best = min(peers, key=lambda key: peers[key]["us"])
            row.update(peer=contender_name(best), peer_us=peers[best]["us"], cpu_peer=peers[best]["cpu_s_per_GB"])
        for key in (REGISTERED, OWN):
            if key in at:
                name, ours = key[1], at[key]
                row.update({f"{name}_us": ours["us"], f"cpu_{name}": ours["cpu_s_per_GB"]})
                if peers:
                    row[f"faster_{name}"] = row["peer_us"] / ours["us"]
                if row["bound_us"]:
                    row[f"bound_times_{name}"] = ours["us"] / row["bound_us"]
        row["missed"] = targets.missed(row)
        rows.append(row)
    return rows


# Times in us; "x peer": times as fast as the best peer; "x bound": times as long as the bound. Of gradsync in registered memory, and
# in the program's own.
HEAD = ["size", "best peer", "us", "registered", "own", "bound", "registered x peer", "own x peer", "registered x bound", "own x bound",
        "CPU s/GB peer", "registered", "own"]


def table(head, body, words=1):
    """The first `words` columns hold words, the others numbers."""
    cells = [head, *body]
    wide = [max(len(r[i]) for r in cells) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) if i < words else c.rjust(w) for i, (c, w) in enumerate(zip(r, wide))) + " |" for r in cells]
    return [lines[0], "|" + "|".join(" --- " if i < words else " ---: " for i in range(len(head))) + "|", *lines[1:]]


def setting_lines(transport, ranks, rows):
    body = [[size_name(r["bytes"]), r.get("peer", "-"), *(short(r.get(k)) for k in (
        "peer_us", "registered_us", "own_us", "bound_us", "faster_registered", "faster_own", "bound_times_registered",
        "bound_times_own", "cpu_peer", "cpu_registered", "cpu_own"))] for r in rows]
    lines = [f"## {transport}, {ranks} ranks", "", *table(HEAD, body, 2), ""]
    misses = [f"- {size_name(r['bytes'])}: {'; '.join(r['missed'])}" for r in rows if r["missed"]]
    return lines + (["Targets missed:", "", *misses, ""] if misses else [])


def start_lines(rows):
    """Rows of start.py."""
    body = [[r["who"], str(r["ranks"]), short(r["joined_ms"]), short(r["first_ms"]),
             "-" if r.get("descriptors") is None else str(r["descriptors"]),
             "-" if r.get("descriptors_first") is None else str(r["descriptors_first"])] for r in rows]
    lines = ["## Start-up", "", *table(["who", "ranks", "joined ms", "first all-reduce done ms", "descriptors a rank: joined",
                                        "after the first all-reduce"], body), ""]
    misses = [f"- {r['who']}, {r['ranks']} ranks: {r['missed']}" for r in rows if r.get("missed")]
    return lines + (["Targets missed:", "", *misses, ""] if misses else [])


def limit_lines(limits):
    body = [[name, of, f"{value:.4g}", unit] for (name, of), (value, unit) in limits.items()]
    return ["## Limits of the machine", "", *table(["what", "of", "value", "unit"], body, 2), ""]


def machine():
    model = "unknown"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}"


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", HERE, *words], capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/src", ":/include")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+changes" if changed else "")


def rounded(value):
    return float(f"{value:.4g}") if isinstance(value, float) else value


class History:
    def __init__(self, path, quick, built=None):
        self.path = path
        self.common = {"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": built or commit(), "machine": machine(),
                       "quick": quick}

    def add(self, rows):
        if not self.path:
            return
        with open(self.path, "a") as file:
            for row in rows:
                kept = {k: rounded(v) for k, v in row.items() if k != "missed" and v is not None}
                file.write(json.dumps({**self.common, **kept}) + "\n")


TSV = ["transport", "ranks", "bytes", "contender", "way", "iterations", "us", "us_mean", "us_p10", "us_p90", "cpu_s_per_GB", "wrong"]


def write_tsv(path, all_series):
    """`all_series`: [(transport, ranks, series)]"""
    with open(path, "w") as file:
        file.write("\t".join(TSV) + "\n")
        for transport, ranks, series in all_series:
            for (who, way, nbytes), s in series.items():
                f = {"transport": transport, "ranks": ranks, "bytes": nbytes, "contender": who, "way": way, **s.figures(nbytes)}
                file.write("\t".join(f"{f[c]:.6g}" if isinstance(f[c], float) else str(f[c]) for c in TSV) + "\n")
