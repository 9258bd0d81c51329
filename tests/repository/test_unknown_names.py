"""What an unknown name of a dataset is answered with, and what our own packages bring."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pluggy
import pytest

import data_stack
from data_stack.exception import ConfigError, DatasetNotFoundError
from data_stack.plugins.manager import default_manager
from data_stack.repository.catalogues import FOLDERS, SCHEME_FOLDERS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PLUGINS = Path(__file__).parents[2] / "plugins"


def message(name: str) -> str:
    with pytest.raises(DatasetNotFoundError) as caught:
        data_stack.load(name)
    return str(caught.value)


@pytest.fixture(scope="module")
def without_plugins(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The message for a name in a Python that has all packages but those of data_stack's plugins."""
    site = tmp_path_factory.mktemp("site")
    for found in Path(pluggy.__file__).parents[1].iterdir():
        if not found.name.lower().startswith(("datastack", "data_stack", "__")) and found.suffix != ".pth":
            (site / found.name).symlink_to(found)

    def ask(name: str) -> str:
        source = f"import data_stack\ntry:\n    data_stack.load({name!r})\nexcept LookupError as error:\n    print(error)"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(PLUGINS.parent)))}
        done = subprocess.run([sys.executable, "-S", "-c", source], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    return ask


def test_the_datasets_and_catalogues_of_our_packages_are_known() -> None:
    datasets: dict[str, str] = {}
    for path in PLUGINS.glob("*/pyproject.toml"):
        entry_points = tomllib.loads(path.read_text(encoding="utf-8"))["project"].get("entry-points", {})
        datasets.update(dict.fromkeys(entry_points.get("data_stack.datasets", ()), path.parent.name))
    modules = {scheme: type(each).__module__.partition(".")[0] for scheme, each in default_manager().catalogues().items()}

    assert dict(FOLDERS) == datasets
    assert {scheme: f"data_stack_{folder}" for scheme, folder in SCHEME_FOLDERS.items()} == modules


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("cifar10", "datastack-classics"),
        ("hf:owner/name", "datastack-huggingface"),
    ],
)
def test_a_name_of_a_package_that_is_not_installed_names_it_and_how_to_install_it(
    without_plugins: Callable[[str], str], name: str, package: str
) -> None:
    said = without_plugins(name)

    folder = package.removeprefix("datastack-")
    assert f"is in the package {package}, which is not installed: `pip install ./plugins/{folder}` in a clone" in said


def test_other_names_say_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pets.csv").write_text("a\n1\n")

    assert "A dataset of the Hugging Face Hub is loaded by 'hf:owner/name'" in message("owner/name")
    assert message("pets.csv").endswith("write './pets.csv'")
    assert "A dataset of the catalogue is hf:name" in message("hf")
    with pytest.raises(ConfigError) as caught:
        data_stack.load("./nope.csv")
    assert str(caught.value) == f"there is nothing at {tmp_path / 'nope.csv'}"
