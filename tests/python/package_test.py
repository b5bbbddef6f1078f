"""What the package refuses to be used with, its tool, its types, and stores of the program's own."""
import array
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import gradsync
from gradsync import _library
from support import DEADLINE, run

PACKAGE = pathlib.Path(gradsync.__file__).parent


class Versions(unittest.TestCase):
    def imported(self, change):
        """What an interpreter says that imports a copy of the package after the change."""
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "gradsync"
            shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "torch", "_bin"))
            change(copy)
            return run([sys.executable, "-B", "-c", "import gradsync; print('fine')"], 60, {"PYTHONPATH": folder})

    def test_the_package_and_its_library_fit(self):
        self.assertEqual(self.imported(lambda copy: None), (0, "fine\n"))

    def test_a_library_of_another_version_is_refused(self):
        major, minor, patch = gradsync.__version__.split(".")
        other = f"{major}.{minor}.{int(patch) + 1}"
        code, output = self.imported(lambda copy: (copy / "_version.py").write_text(f"__version__ = '{other}'\n"))
        self.assertEqual(code, 1)
        self.assertIn(f"ImportError: the Python package gradsync has version {other}, but its library", output)
        self.assertIn(f"has version {gradsync.__version__}; install them together", output)

    def test_a_package_without_its_library_says_so(self):
        code, output = self.imported(lambda copy: shutil.rmtree(copy / "_lib"))
        self.assertEqual(code, 1)
        self.assertIn(f"ImportError: gradsync {gradsync.__version__}: its library cannot be loaded", output)


class Structs(unittest.TestCase):
    def test_they_have_the_sizes_that_the_library_expects(self):
        """A struct of size 0 is refused with the size that would be right."""
        options, call = _library.Options(), _library.Call()
        with_store = _library.Options(ctypes.sizeof(options), 0, 1, store=ctypes.pointer(_library.Store()))
        with_options = _library.Call(ctypes.sizeof(call), 8, options=ctypes.pointer(_library.CallOptions()))
        counters, lib, out = _library.Counters(), _library.lib, ctypes.byref(ctypes.c_void_p())
        comm = gradsync.threads(1)[0]
        handle = comm._open()
        for refused, struct in ((lambda: lib.gradsync_create(ctypes.byref(options), out), options),
                                   (lambda: lib.gradsync_create(ctypes.byref(with_store), out), _library.Store()),
                                   (lambda: lib.gradsync_start(handle, ctypes.byref(call), out), call),
                                   (lambda: lib.gradsync_start(handle, ctypes.byref(with_options), out),
                                    _library.CallOptions()),
                                   (lambda: lib.gradsync_get_counters(handle, ctypes.byref(counters)), counters)):
            with self.assertRaisesRegex(gradsync.InvalidArgumentError,
                                        rf"struct_size is 0, expected {ctypes.sizeof(struct)}$"):
                _library.check(refused())


class Tool(unittest.TestCase):
    def test_the_tool_comes_with_the_package(self):
        code, output = run([sys.executable, "-B", "-m", "gradsync", "run", "-n", "2", "--", "echo", "hello"], 60)
        self.assertEqual((code, output.count("hello")), (0, 2), output)


class Types(unittest.TestCase):
    @unittest.skipUnless(shutil.which("mypy"), "no mypy")
    def test_a_program_with_types_and_the_package_pass_mypy(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "gradsync"
            shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "_bin", "_lib", "*.so"))
            program = pathlib.Path(folder) / "program.py"
            program.write_text(
                "import gradsync\n"
                "comm = gradsync.Communicator.create()\n"
                "work: gradsync.Work = comm.all_reduce(bytearray(3), op='sum', async_op=True)\n"
                "work.wait(timeout=1.0)\n"
                "rank: int = comm.recv(bytearray(3))\n"
                "comm.barrier()\n"
                "comm.barrier(timeout='soon')\n")
            settings = ["--config-file", os.path.join(os.environ["TEST_SOURCE"], "pyproject.toml")]
            done = subprocess.run(["mypy", *settings, "--cache-dir", f"{folder}/cache", "-p", "gradsync"], cwd=folder,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("no issues found in 1", done.stdout)  # more than ten files: gradsync.torch among them
            done = subprocess.run(["mypy", "--strict", "--cache-dir", f"{folder}/cache", "program.py"], cwd=folder,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
            self.assertIn("program.py:7: error", done.stdout)  # the only one
            self.assertEqual(done.stdout.count("program.py:"), done.stdout.count("program.py:7:"), done.stdout)


class Shelf:
    """A store in this process."""

    def __init__(self):
        self.changed = threading.Condition()
        self.values, self.numbers, self.broken = {}, {}, None

    def set(self, key, value):
        if self.broken:
            raise self.broken
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key, timeout):
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values, timeout):
                raise TimeoutError(key)
            return self.values[key]

    def add(self, key, amount):
        with self.changed:
            self.numbers[key] = self.numbers.get(key, 0) + amount
            return self.numbers[key]


class Stores(unittest.TestCase):
    def test_ranks_meet_in_a_store_of_the_program(self):
        store, sums = Shelf(), []

        def rank(number):
            with gradsync.create(rank=number, size=3, store=store, timeout=DEADLINE, start_timeout=DEADLINE) as comm:
                x = array.array("i", [number])
                comm.all_reduce(x)
                sums.append(x[0])

        threads = [threading.Thread(target=rank, args=(number,), daemon=True) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * DEADLINE)
        self.assertEqual(sums, [3, 3, 3])

    def test_what_the_store_raises_is_the_cause(self):
        store = Shelf()
        store.broken = OSError("the shelf fell down")
        with self.assertRaises(gradsync.UnavailableError) as caught:
            gradsync.create(rank=0, size=2, store=store, start_timeout=DEADLINE)
        self.assertIs(caught.exception.__cause__, store.broken)

    def test_who_is_missing_is_said(self):
        with self.assertRaisesRegex(gradsync.TimeoutError, "1"):
            gradsync.create(rank=0, size=2, store=Shelf(), start_timeout=0.2)


class WithoutTheBackend(unittest.TestCase):
    def test_the_import_says_what_is_missing_and_how_to_get_it(self):
        package = os.path.dirname(gradsync.__file__)
        with tempfile.TemporaryDirectory(prefix="gradsync-package-") as folder:
            copy = os.path.join(folder, "gradsync")
            shutil.copytree(package, copy, ignore=shutil.ignore_patterns("_c10d*.so", "__pycache__", "_bin"))
            said = subprocess.run([sys.executable, "-B", "-c", "import gradsync.torch"], env=dict(os.environ, PYTHONPATH=folder),
                                  capture_output=True, text=True, timeout=60)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("ImportError: gradsync.torch: this build of gradsync has no PyTorch backend", said.stderr)
        self.assertIn("--no-build-isolation", said.stderr)


if __name__ == "__main__":
    unittest.main()
