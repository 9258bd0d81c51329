"""Each wheel has all files of its package: an editable install reads the source tree, and hides files that a wheel lacks."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from build_packages import PROJECTS, ROOT, contents, copy_projects, find_faults
from package_version import versions

from data_stack.cli.authors import write_package

(VERSION,) = set(versions().values())


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree, where no former build leaves files for a wheel."""
    folder = tmp_path_factory.mktemp("clone")
    copy_projects(folder)
    return folder


@pytest.fixture(scope="module")
def wheels(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels by package."""
    folder = tmp_path_factory.mktemp("wheels")
    projects = [f"./{project.relative_to(ROOT)}" for project in PROJECTS.values()]
    pip(clone, sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), *projects)
    return {package: next(folder.glob(f"lazy_{package}-*.whl")) for package in PROJECTS}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the dependencies, and without data_stack and its plugins."""
    folder = tmp_path_factory.mktemp("empty")
    dependencies = folder / "dependencies"
    dependencies.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("lazy_data_stack", "__editable__")):
            (dependencies / path.name).symlink_to(path)
    return make_environment(folder, dependencies)


def make_environment(folder: Path, dependencies: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(str(dependencies))
    return folder / "bin" / "python"


def pip(folder: Path, python: str | Path, command: str, *arguments: str) -> str:
    """Run this environment's pip for another one, without the network."""
    options = ["--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    call = [sys.executable, "-m", "pip", "--python", str(python), command, *options, *arguments]
    result = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


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
    (metadata,) = (text.decode() for name, text in contents(wheels["data_stack"]).items() if name.endswith("METADATA"))

    for plugin in (package.removeprefix("data_stack_") for package in PROJECTS.keys() - {"data_stack"}):
        assert f'Requires-Dist: lazy-data-stack-{plugin}>={VERSION}; extra == "{plugin}"' in metadata


CLIENT = """
import data_stack
from data_stack import DatasetIteratorIF, InformedDatasetIteratorIF
from data_stack_iris import IrisFactory
from data_stack_street_signs import Sample
from data_stack.formats.parquet import ParquetDataset
from typing_extensions import assert_type

train: InformedDatasetIteratorIF[Sample] = data_stack.load("street-signs", split="train")
part = train.shuffle(seed=1).filter(bool).take(5)
assert_type(part, InformedDatasetIteratorIF[Sample])
assert_type(part[0]["label"], int)
assert_type(part[1:3], InformedDatasetIteratorIF[Sample])
assert_type(part.combine(ParquetDataset("more")), InformedDatasetIteratorIF[Sample])
for sample in part:
    assert_type(sample["class"], str)
for fold in train.folds(5):
    assert_type(fold.train, InformedDatasetIteratorIF[Sample])
assert_type(train.map(len), InformedDatasetIteratorIF)
assert_type(train.map(len).dataset_meta.identifier, str | None)
lengths: InformedDatasetIteratorIF[int] = train.map(len)
assert_type(lengths.skip(1)[0], int)
assert_type(ParquetDataset("more").take(3), DatasetIteratorIF)
assert_type(IrisFactory().card.name, str)

train[0]["colour"]
part.dataset_mata
ParquetDataset("more").take(3).dataset_meta
"""


def test_mypy_finds_an_editable_install_and_the_types_of_samples(clone: Path, empty: Path, tmp_path: Path) -> None:
    """The finder of an editable install that is not a path is a program, which mypy does not run."""
    package = write_package("street-signs", "images", ["train"], tmp_path)
    python = make_environment(tmp_path / "typed", empty.parents[1] / "dependencies")
    projects = [clone, clone / "plugins" / "iris", package]
    pip(
        tmp_path, python, "install", "--no-deps", "--no-compile", *(word for project in projects for word in ("-e", str(project)))
    )
    (tmp_path / "client.py").write_text(CLIENT)

    # Others' types are not what is checked, and take six times as long.
    others = "pyarrow.*,pandas.*,torch.*,scipy.*,sklearn.*,requests.*,PIL.*,h5py.*,pymongo.*,fsspec.*,polars.*,matplotlib.*,cv2.*"
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = True\n[mypy-{others}]\nfollow_imports = skip\n")

    command = [sys.executable, "-m", "mypy", "--python-executable", str(python), "--config-file=mypy.ini", "client.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    errors = [line.partition("error: ")[2] for line in result.stdout.splitlines() if "error: " in line]
    assert len(errors) == 3, result.stdout + result.stderr
    assert errors[0].startswith('TypedDict "Sample" has no key "colour"')
    assert 'has no attribute "dataset_mata"' in errors[1]
    assert '"DatasetIteratorIF[Any]" has no attribute "dataset_meta"' in errors[2]
