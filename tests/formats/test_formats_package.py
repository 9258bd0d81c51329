"""The package of formats is lazy: a format's library is imported when the format is used."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_package_imports_no_library() -> None:
    assert run("import sys, data_stack.formats; print({'torch', 'h5py', 'numpy'} & set(sys.modules))") == "set()"


def test_without_torch_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n    from data_stack.formats import load_tensors\n"
        "except ImportError as error:\n    print(type(error).__name__, error)"
    )

    assert run(code).startswith("MissingDependencyError ")
    assert run(code).endswith("pip install 'torch', or pip install '.[torch]' in a clone of data_stack")
