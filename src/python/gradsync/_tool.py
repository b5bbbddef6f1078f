"""The command gradsync: becomes the program that came with the package."""
import os
import pathlib
import sys
from typing import NoReturn


def main() -> NoReturn:
    tool = str(pathlib.Path(__file__).parent / "_bin" / "gradsync")
    try:
        os.execv(tool, [tool, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"gradsync: {tool}: {error.strerror}")
