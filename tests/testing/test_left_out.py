"""Tests are skipped for a package that was left out, and for nothing else."""

from __future__ import annotations

import json

import pytest
from process_harness import run_python

PROGRAM = """
import json
from pathlib import Path
import data_stack
from data_stack.exception import MissingDependencyError
from left_out import missing_module

def run(code, file_name):
    try:
        exec(compile(code, file_name, "exec"))
    except Exception as error:
        return missing_module(error)

core = str(Path(data_stack.__file__).parent / "util" / "new.py")
chained = '''
try:
    import absent_package.part
except ImportError as error:
    raise MissingDependencyError("a test", "absent_package", "images") from error
'''
print(json.dumps({
    "imported by a test": run("import absent_package.part", "tests/test_new.py"),
    "named by data_stack": run(chained, core),
    "imported by data_stack": run("import absent_package", core),
    "of another package": run("import other_absent_package", "tests/test_new.py"),
    "of another kind": run("1 / 0", "tests/test_new.py"),
}))
"""

NOTHING = dict.fromkeys(
    [
        "imported by a test",
        "named by data_stack",
        "imported by data_stack",
        "of another package",
        "of another kind",
    ]
)


@pytest.mark.parametrize(
    ("left_out", "excused"),
    [
        ("torch,absent_package", ["imported by a test", "named by data_stack"]),
        ("torch", []),
        ("", []),
    ],
)
def test_only_the_lack_of_a_left_out_package_is_excused(left_out: str, excused: list[str]) -> None:
    output, _ = run_python("-c", PROGRAM, DATA_STACK_LEFT_OUT=left_out)

    assert json.loads(output) == {**NOTHING, **dict.fromkeys(excused, "absent_package")}
