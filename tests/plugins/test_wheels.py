"""Each wheel has all files of its package: an editable install reads the source tree, and hides
files that a wheel lacks.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from build_packages import PROJECTS, ROOT, contents, copy_projects, find_faults
from package_version import versions
from process_harness import run_python

from data_stack.cli.new_package import write_package

(VERSION,) = set(versions().values())


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree, where no former build leaves files for a wheel."""
    folder = tmp_path_factory.mktemp("clone")
    copy_projects(folder)
    return folder


BUILD = """
import os, sys
from setuptools import build_meta
for project in sys.argv[2:]:
    if os.fork() == 0:
        os.chdir(project)
        build_meta.build_wheel(sys.argv[1])
        os._exit(0)
    sys.exit(1) if os.wait()[1] else None
"""


@pytest.fixture(scope="module")
def wheels(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels by package. Forks of one interpreter build them: pip would start three for
    each.
    """
    folder = tmp_path_factory.mktemp("wheels")
    projects = [clone / project.relative_to(ROOT) for project in PROJECTS.values()]
    run_python("-c", BUILD, folder, *projects, timeout_seconds=280, PYTHONPATH="")
    return {package: next(folder.glob(f"lazy_{package}-*.whl")) for package in PROJECTS}


@pytest.mark.parametrize("package", PROJECTS)
def test_a_wheel_has_all_files_of_its_package(wheels: dict[str, Path], package: str) -> None:
    files = {
        str(path.relative_to(PROJECTS[package]))
        for path in (PROJECTS[package] / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    packed = contents(wheels[package])

    assert {name for name in packed if ".dist-info/" not in name} == files
    assert list(find_faults(wheels[package], VERSION)) == []


def test_the_core_has_an_extra_for_each_plugin(wheels: dict[str, Path]) -> None:
    (metadata,) = (
        text.decode()
        for name, text in contents(wheels["data_stack"]).items()
        if name.endswith("METADATA")
    )

    for plugin in (
        package.removeprefix("data_stack_") for package in PROJECTS.keys() - {"data_stack"}
    ):
        assert (
            f'Requires-Dist: lazy-data-stack-{plugin}>={VERSION}; extra == "{plugin}"' in metadata
        )


CLIENT = """
import data_stack
from data_stack import InformedDatasetIteratorIF
from data_stack_iris import IrisFactory
from data_stack_street_signs import Sample
from typing_extensions import assert_type

train: InformedDatasetIteratorIF[Sample] = data_stack.load("street-signs", split="train")
assert_type(train.take(5)[0]["label"], int)
assert_type(IrisFactory().card.name, str)
train[0]["colour"]
"""


@pytest.mark.full  # tests/typed_client.py asserts more types, of the source tree
def test_mypy_finds_an_editable_install_and_the_types_of_samples(
    clone: Path, tmp_path: Path
) -> None:
    """The finder of an editable install that is not a path is a program, which mypy does not
    run.
    """
    package = write_package("street-signs", "images", ["train"], tmp_path)
    run_python("-m", "venv", "--without-pip", tmp_path / "typed")
    python, site = (
        tmp_path / "typed" / "bin" / "python",
        next(tmp_path.glob("typed/lib/python*/site-packages")),
    )
    (tmp_path / "dependencies").mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("lazy_data_stack", "__editable__")):
            (tmp_path / "dependencies" / path.name).symlink_to(path)
    (site / "dependencies.pth").write_text(str(tmp_path / "dependencies"))
    projects = [clone, clone / "plugins" / "iris", package]
    options = [
        "--no-index",
        "--no-build-isolation",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-compile",
    ]
    editable = [word for project in projects for word in ("-e", project)]
    run_python(
        "-m",
        "pip",
        "--python",
        python,
        "install",
        *options,
        *editable,
        timeout_seconds=280,
        PYTHONPATH="",
    )
    (tmp_path / "client.py").write_text(CLIENT)

    # Others' types are not what is checked, and take six times as long.
    others = "pyarrow.*,pandas.*,torch.*,scipy.*,sklearn.*,requests.*,PIL.*,h5py.*,pymongo.*,fsspec.*,polars.*,matplotlib.*,cv2.*"
    (tmp_path / "mypy.ini").write_text(
        f"[mypy]\nstrict = True\n[mypy-{others}]\nfollow_imports = skip\n"
    )

    command = [
        sys.executable,
        "-m",
        "mypy",
        "--python-executable",
        str(python),
        "--config-file=mypy.ini",
        "client.py",
    ]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    errors = [
        line.partition("error: ")[2] for line in result.stdout.splitlines() if "error: " in line
    ]
    assert len(errors) == 1, result.stdout + result.stderr
    assert errors[0].startswith('TypedDict "Sample" has no key "colour"')
