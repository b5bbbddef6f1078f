"""The build backend that pyproject.toml names: scikit-build-core, told what the wheel will hold.

Without the PyTorch backend nothing in it depends on the interpreter, and the wheel serves every Python 3. Where torch
can be imported while building (so with --no-build-isolation), the backend is built too, for that torch and this
interpreter; --config-settings cmake.define.GRADSYNC_C10D=off leaves it out.
"""
from __future__ import annotations

import importlib.util
import sys
from typing import Any, Dict, Optional

from scikit_build_core import build
from scikit_build_core.build import *  # noqa: F401,F403  the other hooks

Config = Optional[Dict[str, Any]]
_CHOICE = "cmake.define.GRADSYNC_C10D"


def _config(given: Config) -> Dict[str, Any]:
    config = dict(given or {})
    default = "auto" if importlib.util.find_spec("torch") is not None else "off"
    if str(config.setdefault(_CHOICE, default)).lower() == "off":
        config.setdefault("wheel.py-api", "py3")
    else:
        config.setdefault("cmake.define.GRADSYNC_PYTHON", sys.executable)
    return config


def build_wheel(wheel_directory: str, config_settings: Config = None, metadata_directory: Optional[str] = None) -> str:
    return build.build_wheel(wheel_directory, _config(config_settings), metadata_directory)


def build_editable(wheel_directory: str, config_settings: Config = None,
                   metadata_directory: Optional[str] = None) -> str:
    return build.build_editable(wheel_directory, _config(config_settings), metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Config = None) -> str:
    return build.prepare_metadata_for_build_wheel(metadata_directory, _config(config_settings))
