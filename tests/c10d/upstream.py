#!/usr/bin/env python3
"""Runs PyTorch 1.13's own tests of torch.distributed, which ship with it, under the name of our backend.

    upstream.py [--backend gradsync] [--world 2] [--at-least N] [--tests PATTERN ...] [--verbose]

PyTorch's tests decide by the backend's name, when their module is imported, which of them exist: an unknown name has none. Here
the module is imported as for "gloo", so that exactly the tests exist that Gloo has, and then told our name. Those that need a
GPU skip themselves. Every test starts its processes by fork, ends within a deadline, and leaves nothing behind. The last line
is "N passed, N failed, N skipped"; exit status 1 if one failed, or fewer passed than --at-least (by default: as with Gloo).
"""
import argparse
import fnmatch
import io
import logging
import os
import shutil
import sys
import tempfile
import types
import unittest

SECONDS_OF_A_TEST = 120
PASSED_BY_GLOO = {2: 93, 3: 114, 4: 114}  # of Debian's 1.13.1, counted by this program with --backend gloo


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gradsync")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--at-least", type=int)
    parser.add_argument("--tests", nargs="*", default=["*"])
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


class Name(str):
    """Our name, which also passes for "gloo" where a test asks what to do rather than what there is."""

    def __eq__(self, other):
        return str.__eq__(self, other) or other == "gloo"

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def add_what_debian_lacks():
    """expecttest is not packaged; the tests of torch.distributed use none of it. ReplicatedTensor is not complete."""
    expecttest = types.ModuleType("expecttest")
    expecttest.TestCase, expecttest.ACCEPT = unittest.TestCase, False
    sys.modules.setdefault("expecttest", expecttest)
    import torch.nn.parallel._replicated_tensor_ddp_utils as replicated

    replicated._set_ddp_with_replicated_tensor = lambda value: None


def import_upstream(backend, world):
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(world), DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(SECONDS_OF_A_TEST),
                      INIT_METHOD=f"file://{tempfile.gettempdir()}/meeting")  # for the one test that begins anew
    add_what_debian_lacks()
    import torch.testing._internal.distributed.distributed_test as upstream

    if backend != "gloo":
        import gradsync.torch  # noqa: F401, registers the name

        os.environ["BACKEND"] = backend
        upstream.BACKEND = Name(backend)
        for names in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
            getattr(upstream, names).append(backend)
    return upstream


def test_class(upstream):
    import torch.multiprocessing

    class TestUpstream(upstream.TestDistBackend, upstream.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        def tearDown(self):
            processes = self.processes
            super().tearDown()
            for process in processes:
                process.join(10)
                if process.is_alive():
                    process.kill()
                    process.join(10)

    return TestUpstream


class Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def chosen_tests(case, patterns):
    names = unittest.defaultTestLoader.getTestCaseNames(case)
    return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def run(options):
    if not options.verbose:
        logging.disable(logging.INFO)
    upstream = import_upstream(options.backend, options.world)
    case = test_class(upstream)
    names = chosen_tests(case, options.tests)
    stream = sys.stderr if options.verbose else io.StringIO()
    runner = unittest.TextTestRunner(stream=stream, resultclass=Result, verbosity=2 if options.verbose else 1)
    result = runner.run(unittest.TestSuite(case(name) for name in names))
    failed = result.failures + result.errors
    for test, text in failed:
        print(f"--- {test.id().split('.')[-1]}\n{text}")
    print(f"{result.passed} passed, {len(failed)} failed, {len(result.skipped)} skipped")
    least = options.at_least
    if least is None:
        least = PASSED_BY_GLOO.get(options.world, 1) if options.tests == ["*"] else 1
    if result.passed < least:
        print(f"fewer passed than {least}")
    return 1 if failed or result.passed < least else 0


def main():
    options = arguments()
    sys.argv = sys.argv[:1]  # PyTorch's test module reads them, too
    folder = tempfile.mkdtemp(prefix="gradsync-upstream-")
    tempfile.tempdir = folder
    os.environ["TMPDIR"] = folder
    process = os.getpid()
    try:
        return run(options)
    finally:
        if os.getpid() == process:  # the tests' processes end by sys.exit, through here
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
