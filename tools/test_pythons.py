"""Runs the tests of ``make unit`` on each Python of this machine, with the packages that have wheels.

``make test-pythons`` calls it. Where a package has no wheel for a Python, tox and nox give up; this
leaves the package out, and says so. Tests that need it are skipped (``tests/support/left_out.py``),
and counted. Each Python has an environment of its own, in ``.venv-pythons``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".venv-pythons"
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))

#: The versions that are looked for; "t" is a build without the GIL.
VERSIONS = ["3.10", "3.11", "3.12", "3.13", "3.14", "3.13t", "3.14t"]

#: Modules of the standard library that some builds lack, and that the tests need.
NEEDED_MODULES = ["bz2", "ctypes", "lzma", "sqlite3", "ssl", "zlib"]

#: Requirements that are not installed, with the reason. Linux's wheels of torch bring gigabytes of
#: CUDA; the tests of torch run on the Python of `make test`.
NEVER_INSTALLED = {
    "torch": "gigabytes of CUDA",
    "accelerate": "needs torch",
    "lightning": "needs torch",
}

#: Pure Python without a wheel: these are built from their sources.
BUILT_FROM_SOURCE = ["jsonpath-rw", "liac-arff"]

#: What uv may install.
FROM_WHEELS = ["--only-binary", ":all:", *(f"--no-binary={name}" for name in BUILT_FROM_SOURCE)]

#: The modules of packages that are called otherwise, for the messages of tests that need them.
MODULE_NAMES = {
    "Pillow": "PIL",
    "PyYAML": "yaml",
    "opencv-python-headless": "cv2",
    "scikit-learn": "sklearn",
}

#: Prints version and kind of an interpreter, and which modules it lacks.
DESCRIBE = f"""
import importlib.util, json, sys, sysconfig
suffix = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
print(json.dumps({{
    "version": "%d.%d" % sys.version_info[:2] + suffix,
    "full_version": sys.version.split()[0] + suffix,
    "lacks": [name for name in {NEEDED_MODULES} if importlib.util.find_spec(name) is None],
}}))
"""

#: Prints the requirements of data_stack's tests, and of the plugins, as pip takes them.
LIST_REQUIREMENTS = """
import json, sys
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
requirements = []
for distribution in sys.argv[1:]:
    for text in requires(distribution) or ():
        requirement = Requirement(text)
        extra = "dev" if distribution == "lazy-data-stack" else ""
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            requirement.marker = None
            requirements.append(str(requirement))
print(json.dumps(sorted(set(requirements))))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python of this machine.

    Attributes:
        path: its program.
        version: such as ``"3.12"``, or ``"3.13t"`` without the GIL.
        full_version: such as ``"3.12.1"``.
        lacks: needed modules that it was built without.
    """

    path: str
    version: str
    full_version: str
    lacks: list[str]


@dataclass
class Result:
    """What became of the tests on a Python.

    Attributes:
        interpreter: the Python.
        left_out: the packages that were not installed, with the reasons.
        last_line: what pytest printed last: how many tests passed and were skipped.
        exit_code: that of pytest.
    """

    interpreter: Interpreter
    left_out: dict[str, str] = field(default_factory=dict)
    last_line: str = ""
    exit_code: int = 0


def describe_interpreter(path: str) -> Interpreter | None:
    """Return what a program is; None if it is no Python that runs, as the shims of pyenv may be."""
    try:
        answer = subprocess.run([path, "-c", DESCRIBE], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return Interpreter(path=path, **json.loads(answer.stdout))


def find_interpreters() -> Iterator[Interpreter]:
    """Yield the first Python of each version, on the PATH or among those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for version in VERSIONS:
        program = f"python{version}"
        # The newest of pyenv comes first.
        of_pyenv = sorted(pyenv.glob(f"*/bin/{program}"), key=_version_of_folder, reverse=True)
        for path in [shutil.which(program), *map(str, of_pyenv)]:
            interpreter = describe_interpreter(path) if path else None
            if interpreter is not None and interpreter.version == version:
                yield interpreter
                break


def _version_of_folder(program: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", program.parents[1].name)]


# ---------------------------------------------------------------------- environments


def prepare_environment(interpreter: Interpreter) -> dict[str, str]:
    """Make the environment of a Python, unless it is there, and return what was left out of it."""
    folder = ENVIRONMENTS / interpreter.version
    stamp = folder / "installed.json"
    key = _digest_of_requirements(interpreter)
    if stamp.exists():
        installed: dict[str, dict[str, str]] = json.loads(stamp.read_text())
        if key in installed:
            return installed[key]

    subprocess.run([interpreter.path, "-m", "venv", "--clear", folder], check=True)
    packages = [argument for path in [ROOT, *PLUGINS] for argument in ("-e", str(path))]
    _run_uv(folder, "pip", "install", "--no-deps", *packages)
    chosen = []
    left_out = {}
    for requirement in _list_requirements(folder):
        reason = NEVER_INSTALLED.get(_name_of(requirement))
        if reason is None:
            chosen.append(requirement)
        else:
            left_out[_name_of(requirement)] = reason
    if not _resolve(folder, chosen):
        for requirement in list(chosen):
            if not _resolve(folder, [requirement]):
                chosen.remove(requirement)
                left_out[_name_of(requirement)] = "no wheel"
        _resolve(folder, chosen)
    _run_uv(folder, "pip", "install", *FROM_WHEELS, "-r", str(_lock_of(folder)))
    # The tests compare this version with the current one, as the Makefile says.
    other_granular = ["--target", str(folder / "granular-0.21"), "granular==0.21.2"]
    _run_uv(folder, "pip", "install", "--no-deps", *other_granular)
    stamp.write_text(json.dumps({key: left_out}))
    return left_out


def _digest_of_requirements(interpreter: Interpreter) -> str:
    """Return a digest of all that decides what is installed."""
    digest = hashlib.sha256(interpreter.full_version.encode())
    for path in [Path(__file__), ROOT / "setup.py", ROOT / "constraints.txt", *PLUGINS]:
        file = path / "pyproject.toml" if path.is_dir() else path
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _list_requirements(folder: Path) -> list[str]:
    names = ["lazy-data-stack", *(f"lazy-data-stack-{path.name}" for path in PLUGINS)]
    program = folder / "bin" / "python"
    answer = subprocess.run(
        [program, "-c", LIST_REQUIREMENTS, *names], capture_output=True, text=True, check=True
    )
    requirements = json.loads(answer.stdout)
    return [text for text in requirements if not text.startswith("lazy-data-stack")]


def _name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]


def _lock_of(folder: Path) -> Path:
    return folder / "requirements.txt"


def _resolve(folder: Path, requirements: Sequence[str]) -> bool:
    """Choose versions of requirements, and of what they need, that have wheels for this Python.

    uv prefers the versions that are in its output file already: those of ``make test``, where this
    Python has them.

    Returns:
        Whether there are such versions.
    """
    lock = _lock_of(folder)
    shutil.copyfile(ROOT / "constraints.txt", lock)
    resolution = _uv(
        folder,
        *("pip", "compile", "-", "--output-file", str(lock), *FROM_WHEELS),
        stdin="\n".join(requirements),
        is_quiet=True,
    )
    return resolution.returncode == 0


def _run_uv(folder: Path, *arguments: str) -> None:
    _uv(folder, *arguments).check_returncode()


def _uv(
    folder: Path, *arguments: str, stdin: str = "", is_quiet: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run uv for the environment in a folder; it resolves in a second what takes pip minutes."""
    program = folder / "bin" / "python"
    output = subprocess.DEVNULL if is_quiet else None
    return subprocess.run(
        [sys.executable, "-m", "uv", *arguments, "--quiet", "--python", str(program)],
        check=False,
        input=stdin,
        text=True,
        stdout=output,
        stderr=output,
    )


# ---------------------------------------------------------------------- tests


def run_tests(interpreter: Interpreter, pytest_arguments: Sequence[str]) -> Result:
    """Run the tests on a Python, and print what pytest prints."""
    result = Result(interpreter)
    if interpreter.lacks:
        result.last_line = f"not run: it was built without {', '.join(interpreter.lacks)}"
        result.exit_code = 1
        return result
    result.left_out = prepare_environment(interpreter)
    modules = [MODULE_NAMES.get(name, name.replace("-", "_")) for name in result.left_out]
    program = ENVIRONMENTS / interpreter.version / "bin" / "python"
    command = [str(program), *pytest_arguments]
    environment = {**os.environ, "DATA_STACK_LEFT_OUT": ",".join(modules)}
    if interpreter.version.endswith("t"):
        # Otherwise Python enables the GIL again for a package that does not say that it needs none.
        environment["PYTHON_GIL"] = "0"
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            if line.strip():
                result.last_line = line.strip()
    result.exit_code = process.returncode
    return result


def main() -> None:
    """Test the Pythons of the command line, or all that are found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pythons", default="", help="programs, instead of all that are found")
    parser.add_argument("pytest", nargs="+", help="what each Python runs: -m pytest …")
    options = parser.parse_args()
    if options.pythons:
        programs = options.pythons.split()
        found = [describe_interpreter(program) for program in programs]
        if None in found:
            sys.exit(f"{programs[found.index(None)]} is no Python that runs")
        interpreters = [interpreter for interpreter in found if interpreter is not None]
    else:
        interpreters = list(find_interpreters())
        missing = set(VERSIONS).difference(interpreter.version for interpreter in interpreters)
        print(f"not found, so not tested: {', '.join(sorted(missing)) or 'none'}")

    results = []
    for interpreter in interpreters:
        print(f"\n== Python {interpreter.full_version}, {interpreter.path}", flush=True)
        results.append(run_tests(interpreter, options.pytest))

    print()
    for result in results:
        left_out = ", ".join(f"{name} ({reason})" for name, reason in result.left_out.items())
        print(f"Python {result.interpreter.full_version}: {result.last_line}")
        print(f"    left out: {left_out or 'nothing'}")
    sys.exit(any(result.exit_code for result in results))


if __name__ == "__main__":
    main()
