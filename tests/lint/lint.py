#!/usr/bin/env python3
"""House rules that a machine can check. Prints "file:line: what" for each violation; exit status 1 if there is one.

    lint.py ROOT
"""
import os
import re
import sys

# A folder of src/ includes its own headers and those of lower rows.
ROWS = {
    "base": 0,
    "schedule": 1,
    "algorithms": 2, "kernels": 2,
    "verify": 3, "simulate": 3, "codec": 3, "transport": 3,
    "engine": 4,
    "comm": 5,
    "train": 6, "server": 6, "federated": 6,
    "c": 7, "python": 7, "torch": 7, "c10d": 7, "cli": 7,
}
# The folder that implements a public header.
PUBLIC = {
    "types.hpp": "base", "error.hpp": "base", "options.hpp": "base", "counters.hpp": "base", "store.hpp": "base",
    "communicator.hpp": "comm", "gradient_sync.hpp": "train", "gradsync.hpp": "train", "gradsync.h": "c",
}
MUTEX_ROW = 5
# Files below that row that may lock, with the reason.
MUTEX_ALLOWED = {
    "src/transport/loopback.hpp": "creation of a stream by whichever of its two threads comes first, once a stream",
    "src/transport/loopback.cpp": "the same",
    "src/base/own_sockets.cpp": "a fork waits while a socket is opened or closed",
}

CODE = (".cpp", ".hpp", ".h", ".cc", ".c")
TEXT = CODE + (".md", ".txt", ".cmake", ".in", ".json", ".py", ".pyi", ".toml", ".sh", ".map", ".yml")
PLAIN_NAMES = {"Makefile", "setup", "run", "lint", "format", "sanitize", "tidy", "demo"}
SKIPPED = re.compile(r"^(\.git|\.cache|build(-.*)?|out|__pycache__)$")

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
MUTEX = re.compile(r"\b(std::)?(\w*mutex\w*|scoped_lock|lock_guard|unique_lock|condition_variable\w*)\b")
DEAD = re.compile(r"^\s*#\s*if\s+(0|false)\b")
NOW = re.compile(r"TODO\(now\)")
REFERENCE = re.compile(r"\b(issue|issues|pull request|PR|bug|ticket|fixes|closes|resolves)\s*[#:]?\s*\d+\b|\b[A-Za-z][\w-]*#\d+\b", re.I)
MACHINE = re.compile(r"(?<![\w./:])/(home|root|work|Users)/\w")


def uncommented(lines):
    """The lines without comments; a string that holds // is rare enough to be read as one."""
    inside, out = False, []
    for line in lines:
        if inside:
            end = line.find("*/")
            line, inside = ("", True) if end < 0 else (line[end + 2:], False)
        line = re.sub(r"/\*.*?\*/", "", line)
        start = line.find("/*")
        if start >= 0 and "//" not in line[:start]:
            line, inside = line[:start], True
        out.append(line.split("//", 1)[0])
    return out


def folder_of(path):
    """The row's folder that a file of the repository belongs to, or None: tests/, bench/ and examples/ see everything."""
    parts = path.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    if parts[:2] == ["include", "gradsync"]:
        return public_folder("/".join(parts[2:]))
    return None


def public_folder(name):
    """Of a header below include/gradsync: that of the table, or the face whose folder it is in."""
    first = name.split("/", 1)[0]
    return first if "/" in name and first in ROWS else PUBLIC.get(name)


def included_folder(name):
    if name.startswith("torch/csrc/"):  # PyTorch's own
        return None
    if name.startswith("gradsync/"):
        return public_folder(name[len("gradsync/"):])
    first = name.split("/", 1)[0]
    return first if "/" in name and first in ROWS else None


def check_rows(path, code):
    folder = folder_of(path)
    if path.startswith("include/gradsync/") and folder is None:
        yield 1, "public header belongs to no folder, enter it in tests/lint/lint.py"
    if path.startswith("src/") and folder not in ROWS:
        yield 1, f"src/{folder} belongs to no row, enter it in tests/lint/lint.py"
        return
    for number, line in enumerate(code, 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        name = found.group(1)
        if ".." in name.split("/"):
            yield number, f'include of "{name}": say the path from src/ or include/'
        target = included_folder(name)
        if folder is None or target is None or target == folder:
            continue
        if ROWS[target] >= ROWS[folder]:
            yield number, (f'include of "{name}": {folder}/ is in row {ROWS[folder]} and may use only lower rows, '
                           f"{target}/ is in row {ROWS[target]}")


def check_code(path, lines, code):
    row = ROWS.get(folder_of(path) or "", MUTEX_ROW)
    locks = row >= MUTEX_ROW or path in MUTEX_ALLOWED or path.endswith("_test.cpp")
    for number, line in enumerate(code, 1):
        if DEAD.match(line):
            yield number, "dead code behind the preprocessor"
        found = None if locks else MUTEX.search(line)
        if found:
            yield number, f"'{found.group(0)}' in row {row}: no mutex below row {MUTEX_ROW}"
    for number, line in enumerate(lines, 1):
        if NOW.search(line):
            yield number, "a TODO that was to be done now"
    # A Highway *_inl.hpp is meant to be included once an instruction set.
    if path.endswith(".hpp") and not path.endswith("_inl.hpp") and "#pragma once" not in (line.strip() for line in lines):
        yield 1, "header without #pragma once"


def check_text(path, lines):
    for number, line in enumerate(lines, 1):
        found = REFERENCE.search(line)
        if found:
            yield number, f"'{found.group(0)}' refers to a tracker: say what it is about instead"
        found = MACHINE.search(line)
        if found:
            yield number, f"'{found.group(0)}…' is a path of one machine"


def check_links(path, text):
    """gradsync_row(NAME rows…) names only lower rows."""
    folder = folder_of(path)
    found = re.search(r"gradsync_row\(([^)]*)\)", text)
    if folder is None or found is None:
        return
    name, *links = found.group(1).split("LIBRARIES")[0].split()
    if name != folder:
        yield 1, f"gradsync_row({name}) in src/{folder}"
    for link in links:
        if link not in ROWS or folder in ROWS and ROWS[link] >= ROWS[folder]:
            yield 1, f"gradsync_row({name} … {link}): not a lower row"


def check_file(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    if path.endswith(CODE):
        code = uncommented(lines)
        if path.startswith(("src/", "include/")):
            yield from check_rows(path, code)
        yield from check_code(path, lines, code)
    if path.endswith("CMakeLists.txt"):
        yield from check_links(path, "\n".join(lines))
    yield from check_text(path, lines)


def files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not SKIPPED.match(name))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")
            if path.startswith("tests/lint/") or path == "LICENSE":
                continue
            if name.endswith(TEXT) or name in PLAIN_NAMES:
                yield path


def lint(root):
    """[(file, line, what)] of the tree, and how many files were read."""
    found, count = [], 0
    for path in files(root):
        count += 1
        found += [(path, number, what) for number, what in check_file(root, path)]
    return found, count


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found, count = lint(sys.argv[1])
    for path, number, what in found:
        print(f"{path}:{number}: {what}")
    if count == 0:
        sys.exit(f"lint: no files under {sys.argv[1]}")
    print(f"lint: {count} files, {len(found)} violations")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
