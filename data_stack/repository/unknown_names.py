"""What to do about a name that no installed dataset or catalogue has."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from data_stack.plugins.manager import PluginManager
from data_stack.repository.places import format_of_name
from data_stack.util.suggestions import did_you_mean

#: The folders in ``plugins`` of data_stack's repository, and the datasets that they provide.
_DATASETS: Final[Mapping[str, str]] = {
    "classics": "20-newsgroups adult ag-news california-housing cifar10 cifar100 covertype emnist-balanced emnist-byclass "
    "emnist-bymerge emnist-digits emnist-letters emnist-mnist fashion-mnist imdb-reviews kmnist penguins qmnist speech-commands "
    "stl10 svhn titanic usps wine-quality",
    "digits": "digits",
    "iris": "iris",
}
FOLDERS: Final[Mapping[str, str]] = {name: folder for folder, names in _DATASETS.items() for name in names.split()}
"""Where the datasets of data_stack's own packages are, by their names."""

SCHEME_FOLDERS: Final[Mapping[str, str]] = {"doi": "doi", "hf": "huggingface", "openml": "openml", "sklearn": "sklearn"}
"""Where the catalogues of data_stack's own packages are, by their schemes."""

_MAX_NAMES_SHOWN: Final = 20
_NAME_OF_THE_HUB: Final = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def install_command(distribution: str) -> str:
    """How to install a distribution such as ``"datastack-digits 1.0.0"``; data_stack's own packages are those of its clone."""
    name, _, version = distribution.partition(" ")
    folder = name.removeprefix("datastack-")
    if folder in {*_DATASETS, *SCHEME_FOLDERS.values()}:
        return f"`pip install ./plugins/{folder}` in a clone of data_stack"
    return f"`pip install {name}=={version}`" if version else f"`pip install {name}`"


def explain_unknown_dataset(identifier: object, reason: str, names: Sequence[str], plugins: PluginManager | None) -> str:
    """Why no dataset has a name, and what to do.

    Args:
        identifier: the name.
        reason: from the plugins; empty without plugins.
        names: of all known datasets.
        plugins: the plugins that were asked, if any.
    """
    text = identifier if isinstance(identifier, str) else ""
    if plugins is not None and os.path.exists(text):
        return f"{reason}. To open the file or folder with this name, write {os.path.join(os.curdir, text)!r:.200}"
    if plugins is not None and (advice := _explain_path(text) or _explain_package(text)):
        return advice
    near = did_you_mean(identifier, names if plugins is None else [*names, *FOLDERS])
    scheme = "" if plugins is None else explain_scheme(text, plugins)
    return (
        f"{reason or f'no dataset {identifier!r:.80} is registered'}{near}{scheme}. Known datasets: {list_names(names)}. "
        f"Plugins provide more; `data-stack doctor` shows the installed ones."
    )


def list_names(names: Sequence[str]) -> str:
    """Names in one line, at most twenty of them."""
    shown = ", ".join(names[:_MAX_NAMES_SHOWN]) or "none"
    return shown if len(names) <= _MAX_NAMES_SHOWN else f"{shown} and {len(names) - _MAX_NAMES_SHOWN:,} more"


def explain_scheme(identifier: str, plugins: PluginManager) -> str:
    """What to do about a name, or a scheme with or without ``:``, that no catalogue takes; empty for other names."""
    scheme, colon, _ = identifier.partition(":")
    if not colon and scheme not in SCHEME_FOLDERS:
        return ""
    known = sorted(plugins.catalogues())
    if scheme in known:
        return f". A dataset of the catalogue is {scheme}:name, {scheme}:name@version or {scheme}:name#part"
    if scheme in SCHEME_FOLDERS:
        return f". The catalogue {scheme!r} {_explain_folder(SCHEME_FOLDERS[scheme])}"
    near = did_you_mean(scheme, {*known, *SCHEME_FOLDERS})
    packages = ", ".join(f"./plugins/{folder}" for name, folder in SCHEME_FOLDERS.items() if name not in known)
    more = f"; `pip install` of {packages} in a clone of data_stack brings more" if packages else ""
    wanted = f"catalogue {scheme!r:.40}" if scheme else "catalogue"
    return f". No {wanted} is installed{near}; installed are: {', '.join(known) or 'none'}{more}"


def _explain_path(text: str) -> str:
    """Explain that a file is missing, if the name looks like a path."""
    if ":" in text or not ("/" in text or os.sep in text or format_of_name(text)):
        return ""
    is_name_of_hub = _NAME_OF_THE_HUB.fullmatch(text) and not format_of_name(text)
    hub = f". A dataset of the Hugging Face Hub is loaded by 'hf:{text}'" if is_name_of_hub else ""
    return f"found neither a file or folder {text!r:.200} here nor a dataset with this name{hub}"


def _explain_package(text: str) -> str:
    """Name the first-party package of a dataset, if the package is not installed."""
    name = text.partition("@")[0]
    if name not in FOLDERS or importlib.util.find_spec(f"data_stack_{FOLDERS[name]}") is not None:
        return ""
    return f"dataset {name!r} {_explain_folder(FOLDERS[name])}"


def _explain_folder(folder: str) -> str:
    package = f"datastack-{folder}"
    if importlib.util.find_spec(f"data_stack_{folder}") is not None:
        return f"is in the package {package}, which is disabled or broken: see `data-stack doctor`"
    return f"is in the package {package}, which is not installed: {install_command(package)}"
