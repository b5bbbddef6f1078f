#!/usr/bin/env python3
"""Runs a training program twice: both runs must end well and print the same fingerprints and results.

    run_twice.py COMMAND ARGS…

The time left at the end of a line is not compared, nor are lines with "seconds" in them.
"""
import re
import subprocess
import sys


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=130, check=False)
    print(done.stdout)
    if done.returncode != 0:
        sys.exit(f"exit status {done.returncode}")
    lines = [re.sub(r"\s+\d+ s left$", "", line) for line in done.stdout.splitlines()]
    return [line for line in lines if "seconds" not in line]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    first, second = run(sys.argv[1:]), run(sys.argv[1:])
    if not first:
        sys.exit("the program printed nothing")
    if sorted(first) != sorted(second):
        sys.exit("two runs differ")


if __name__ == "__main__":
    main()
