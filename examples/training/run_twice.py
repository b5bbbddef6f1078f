#!/usr/bin/env python3
"""Runs a training program twice: both runs must end well and print the same fingerprints and results.

    run_twice.py COMMAND ARGS…

Lines that tell a time are not compared: those with " s left" or "seconds" in them.
"""
import subprocess
import sys


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=130, check=False)
    print(done.stdout)
    if done.returncode != 0:
        sys.exit(f"exit status {done.returncode}")
    return [line for line in done.stdout.splitlines() if " s left" not in line and "seconds" not in line]


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
