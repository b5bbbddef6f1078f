#!/usr/bin/env python3
"""What `pip install --no-build-isolation .` puts into the wheel where torch is: the sources and the install component `python`, laid out
as the wheel has them, away from the build folder. Two ranks reduce there. (That pip builds it at all needs scikit-build-core, which
Debian 12 does not have.)"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROGRAM = """
import pathlib, sys, torch, torch.distributed as dist
import gradsync.torch
here = pathlib.Path(sys.argv[1])
assert here in pathlib.Path(gradsync.__file__).parents, gradsync.__file__
mapped = [line.split()[-1] for line in open("/proc/self/maps") if "libgradsync.so" in line]
assert mapped and all(str(here) in path for path in mapped), mapped
dist.init_process_group("gradsync")
tensor = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(tensor)
print("sum", tensor[0].item())
dist.destroy_process_group()
"""


def run(*command, **environment):
    done = subprocess.run([str(word) for word in command], env={**os.environ, **environment}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=100)
    if done.returncode != 0:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def main():
    source, build = pathlib.Path(os.environ["TEST_SOURCE"]), os.environ["TEST_BUILD"]
    with tempfile.TemporaryDirectory(prefix="gradsync-wheel-") as folder:
        shutil.copytree(source / "src/python/gradsync", pathlib.Path(folder) / "gradsync", ignore=shutil.ignore_patterns("*.in", "__pycache__"))
        run("cmake", "--install", build, "--component", "python", "--prefix", folder)
        program = pathlib.Path(folder) / "program.py"
        program.write_text(PROGRAM)
        tool = pathlib.Path(folder) / "gradsync/_bin/gradsync"
        output = run(tool, "run", "-n", "2", "--timeout", "60", "--", sys.executable, "-B", program, folder, PYTHONPATH=folder)
        if output.count("sum 3.0") != 2:
            sys.exit(f"expected the sum of two ranks:\n{output}")
    print("ok")


main()
