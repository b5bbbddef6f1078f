#!/usr/bin/env python3
"""Each planted violation is found, at its line, and what is allowed passes."""
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint  # noqa: E402

HEADER = "#pragma once\n"


def lint_of(files):
    """Violations as [(file, line, what)] of a tree with these files."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return lint.lint(root)[0]


class Lint(unittest.TestCase):
    def finds(self, path, text, line, what):
        found = lint_of({path: text})
        self.assertEqual([(path, line)], [(p, n) for p, n, _ in found], found)
        self.assertIn(what, found[0][2])

    def passes(self, path, text):
        self.assertEqual([], lint_of({path: text}))

    def test_finds_an_include_of_a_higher_row(self):
        self.finds("src/base/a.cpp", '#include <vector>\n#include "schedule/step.hpp"\n', 2, "only lower rows")
        self.finds("src/engine/a.hpp", HEADER + '#include "comm/health.hpp"\n', 2, "only lower rows")

    def test_knows_the_public_headers_of_a_face(self):
        self.passes("include/gradsync/torch/a.hpp", HEADER + '#include "gradsync/communicator.hpp"\n')
        self.finds("src/train/a.cpp", '#include "gradsync/torch/a.hpp"\n', 1, "only lower rows")

    def test_finds_an_include_of_a_foreign_folder_of_the_same_row(self):
        self.finds("src/verify/a.cpp", '#include "simulate/network.hpp"\n', 1, "only lower rows")

    def test_finds_every_pair_of_rows_that_may_not_include(self):
        for folder, row in lint.ROWS.items():
            for target, target_row in lint.ROWS.items():
                found = lint_of({f"src/{folder}/a.cpp": f'#include "{target}/b.hpp"\n'})
                self.assertEqual(folder != target and target_row >= row, bool(found), (folder, target))

    def test_finds_an_include_of_a_public_header_that_belongs_to_a_higher_row(self):
        self.finds("src/engine/a.cpp", '#include "gradsync/communicator.hpp"\n', 1, "only lower rows")
        self.finds("include/gradsync/types.hpp", HEADER + '#include "gradsync/gradsync.hpp"\n', 2, "only lower rows")

    def test_finds_a_public_header_and_a_folder_without_a_row(self):
        self.finds("include/gradsync/novel.hpp", HEADER, 1, "belongs to no folder")
        self.finds("src/novel/a.cpp", "", 1, "belongs to no row")

    def test_passes_includes_of_lower_rows_of_the_own_folder_and_of_others(self):
        self.passes("src/engine/a.cpp", '#include "base/status.hpp"\n#include "engine/work.hpp"\n#include <sys/socket.h>\n')
        self.passes("src/base/a.cpp", '#include "gradsync/types.hpp"\n// #include "comm/health.hpp"\n')
        self.passes("tests/mixed/a.cpp", '#include "comm/health.hpp"\n#include "engine/work.hpp"\n')

    def test_finds_a_link_to_a_row_that_is_not_lower(self):
        self.finds("src/verify/CMakeLists.txt", "gradsync_row(verify simulate base)\n", 1, "not a lower row")
        self.passes("src/kernels/CMakeLists.txt", "gradsync_row(kernels base LIBRARIES hwy::hwy)\n")

    def test_finds_an_include_that_climbs(self):
        self.finds("src/comm/a.cpp", '#include "../base/status.hpp"\n', 1, "say the path")

    def test_finds_locks_below_the_group_row(self):
        self.finds("src/engine/a.cpp", "\n#include <mutex>\n", 2, "no mutex")
        self.finds("src/transport/tcp.cpp", "std::shared_mutex m;\n", 1, "no mutex")
        self.finds("src/kernels/a.hpp", HEADER + "pthread_mutex_t m;\n", 2, "no mutex")
        self.finds("src/schedule/a.cpp", "std::condition_variable c;\n", 1, "no mutex")

    def test_passes_locks_in_the_group_row_in_allowed_files_and_in_comments(self):
        self.passes("src/comm/a.cpp", "#include <mutex>\nstd::mutex m;\n")
        self.passes("src/transport/loopback.cpp", "std::mutex m;\n")
        self.passes("src/engine/a.cpp", "// no mutex here\n/* nor a\n   mutex here */ int x;\n")

    def test_finds_dead_code(self):
        self.finds("src/base/a.cpp", "\n #if 0\n#endif\n", 2, "dead code")
        self.passes("src/base/a.cpp", "#if 0x10 > 3\n#endif\n")

    def test_finds_what_was_to_be_done_now(self):
        self.finds("src/base/a.cpp", "int a;\n// TODO(now): think\n", 2, "TODO")
        self.passes("src/base/a.cpp", "// TODO(speed): think\n")

    def test_finds_references_to_a_tracker(self):
        self.finds("docs/a.md", "text\nas in issue 12\n", 2, "tracker")
        self.finds("src/base/a.cpp", "// Fixes #7\n", 1, "tracker")
        self.finds("src/base/a.cpp", "// see gloo#179\n", 1, "tracker")
        self.passes("src/base/a.cpp", '// "recv from rank 3 step 17 (all_reduce #42)"\n')

    def test_finds_paths_of_a_machine(self):
        self.finds("scripts/setup", "cd /home/someone/gradsync\n", 1, "one machine")
        self.finds("tests/CMakeLists.txt", "\nset(x /root/x)\n", 2, "one machine")
        self.passes("README.md", "src/work/queue.hpp, https://example.org/home/x, /tmp/x\n")

    def test_finds_a_header_that_can_be_included_twice(self):
        self.finds("src/base/a.hpp", "int f();\n", 1, "#pragma once")

    def test_reads_nothing_of_build_folders(self):
        self.passes("build-x/src/base/a.cpp", "#include <mutex>\n")


if __name__ == "__main__":
    unittest.main()
