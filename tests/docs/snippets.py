"""Runs the code of a page of docs/ on two ranks.

    snippets.py TOOL PYTHON PAGE.md              the blocks of Python, one after another as one program
    snippets.py TOOL COMPILER PAGE.md FOLDER…    those of C: whole programs, and parts in the order of the page;
                                                 the folders: headers, library

Code that a reader copies must work as it stands; only the parts of C get a frame, which declares comm, rank and values.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FRAME = """#include <gradsync/gradsync.h>
#include <stdio.h>
#include <stdlib.h>
#define CHECK(c) ((c) ? (void)0 : (fprintf(stderr, "%%s: %%s\\n", #c, gradsync_error_message()), exit(1)))
int main(void) {
  gradsync_comm* comm = NULL;
  int32_t values[4] = {1, 2, 3, 4};
  int rank = -1;
  CHECK(gradsync_create(NULL, &comm) == GRADSYNC_OK);
  CHECK(gradsync_rank(comm, &rank) == GRADSYNC_OK);
%s
  return gradsync_destroy(comm) != GRADSYNC_OK;
}
"""


def blocks(page, language):
    found = re.findall(rf"^```{language}\n(.*?)^```", pathlib.Path(page).read_text(encoding="utf-8"), re.M | re.S)
    if not found:
        sys.exit(f"{page} shows no {language}")
    return found


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=100, check=False)
    if done.returncode != 0:
        sys.exit(f"{command} ended with {done.returncode}")


def run_on_two_ranks(tool, command):
    run([tool, "run", "-n", "2", "--timeout", "60", "--", *command])


def run_python(tool, python, page, folder):
    program = os.path.join(folder, "page.py")
    pathlib.Path(program).write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    run_on_two_ranks(tool, [python, "-B", program])


def run_c(tool, compiler, page, folder, include, library):
    found = blocks(page, "c")
    whole = [text for text in found if "int main" in text]
    parts = [text for text in found if "int main" not in text]
    for number, text in enumerate([*whole, FRAME % "".join("{\n" + part + "}\n" for part in parts)]):
        program = os.path.join(folder, f"program{number}")
        pathlib.Path(program + ".c").write_text(text, encoding="utf-8")
        run([compiler, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{include}", program + ".c", "-o", program,
             f"-L{library}", f"-Wl,-rpath,{library}", "-lgradsync"])
        run_on_two_ranks(tool, [program])


def main():
    tool, with_what, page, *folders = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if folders:
            run_c(tool, with_what, page, folder, *folders)
        else:
            run_python(tool, with_what, page, folder)


main()
