"""`pip install` of the checkout into a fresh environment, and two ranks there that reduce.

Skipped, saying what was not tested, where a venv cannot be made or pip cannot get scikit-build-core.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

from support import run

SOURCE = pathlib.Path(os.environ["TEST_SOURCE"])
BUILD = pathlib.Path(os.environ["TEST_BUILD"])
SKIPPED = 77
PROGRAM = """
import array, gradsync, pathlib, sys
assert pathlib.Path(sys.prefix) in pathlib.Path(gradsync.__file__).parents, gradsync.__file__
with gradsync.create(timeout=30) as comm:
    x = array.array("d", [comm.rank + 1])
    comm.all_reduce(x)
    print("sum", x[0])
"""


def skip(why, output):
    print(output)
    print(f"skipped: {why}; not tested: that pip builds the wheel, and that it works once it is installed")
    sys.exit(SKIPPED)


def expect(condition, what, output):
    if not condition:
        sys.exit(f"{output}\n{what}")


def checked(command, seconds, environment=None):
    code, output = run([str(word) for word in command], seconds, environment)
    expect(code == 0, f"{command} ended with {code}", output)
    return output


def pip_install(python):
    # Compiled as the build folder is, in a folder beside it, so that ccache knows every object.
    environment = {"CC": os.environ["TEST_CC"], "CXX": os.environ["TEST_CXX"], "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if (SOURCE / ".git").exists():
        environment.update(CCACHE_BASEDIR=str(SOURCE), CCACHE_NOHASHDIR="1")
    settings = {"build-dir": BUILD.parent / "build-wheel", "cmake.define.GRADSYNC_C10D": "off",
                "cmake.define.GRADSYNC_WERROR": "ON"}
    options = [word for name, value in settings.items() for word in ("--config-settings", f"{name}={value}")]
    command = [str(python), "-m", "pip", "install", "-v", "--no-deps", *options, str(SOURCE)]
    code, output = run(command, 1000, environment)
    if code != 0 and "No matching distribution found for scikit-build-core" in output:
        skip("pip cannot get scikit-build-core", output)
    expect(code == 0, f"pip install ended with {code}", output)


def main():
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run([sys.executable, "-m", "venv", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120, check=False)
        if made.returncode != 0:
            skip("no venv can be made", made.stdout)
        bin_folder = pathlib.Path(folder) / "bin"
        pip_install(bin_folder / "python3")

        files = checked([bin_folder / "python3", "-m", "pip", "show", "-f", "gradsync"], 60)
        expect("Name: gradsync" in files, "pip does not know gradsync", files)
        info = next(pathlib.Path(folder).glob("lib/python3*/site-packages/gradsync-*.dist-info"))
        wheel, points = (info / "WHEEL").read_text(), (info / "entry_points.txt").read_text()
        expect("Tag: py3-none-linux" in wheel, "the wheel is not for every Python 3", wheel)
        expect("[torch.distributed.backends]\ngradsync = gradsync.torch:register" in points, "no entry point", points)

        program = pathlib.Path(folder) / "program.py"
        program.write_text(PROGRAM)
        launch = [bin_folder / "gradsync", "run", "-n", "2", "--timeout", "60", "--"]
        output = checked([*launch, bin_folder / "python3", program], 90, {"PYTHONPATH": ""})
        expect(output.count("sum 3.0") == 2, "expected the sum of two ranks", output)
        checked([bin_folder / "python3", "-m", "pip", "uninstall", "-y", "gradsync"], 60)
        left = [path for path in info.parent.glob("gradsync*")]
        expect(not left, "left behind by pip uninstall", left)
    print("ok")


main()
