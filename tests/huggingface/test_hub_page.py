"""The code of docs/catalogues.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import datasets
from hub_server import HubServer, Repo

PAGE = Path(__file__).parents[2] / "docs" / "catalogues.md"


def test_the_code_of_the_page_runs(hub: HubServer, parquet_of: Any, pictures: Any) -> None:
    rows, features = pictures
    digits = {"image": rows["image"][:2], "label": [5, 0]}
    file = parquet_of(digits, datasets.Features({"image": features["image"], "label": datasets.ClassLabel(num_classes=10)}))
    config = {"config_name": "mnist", "data_files": [{"split": split, "path": f"mnist/{split}-*"} for split in ("train", "test")]}
    hub.repos["ylecun/mnist"] = Repo(card={"configs": [config]})
    hub.repos["ylecun/mnist"].commit({f"mnist/{split}-00000-of-00001.parquet": file for split in ("train", "test")})
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}

    exec(code, names)

    assert (names["image"].shape, names["label"], len(names["lazily"])) == ((5, 4), 5, 2)
