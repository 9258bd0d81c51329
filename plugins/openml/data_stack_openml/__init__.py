"""Datasets of OpenML: ``data_stack.load("openml:61")``; by the API that https://www.openml.org/apis documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import arff
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_stack import (
    Catalogue,
    CatalogueDataset,
    CatalogueEntry,
    CatalogueName,
    DatasetCard,
    DatasetIteratorIF,
    IteratorMeta,
    PreparedResources,
    ResourceDefinition,
    Resources,
    StorageConnector,
)
from data_stack.exception import CatalogueError, CatalogueSchemaError, DatasetNotFoundError, RevisionNotFoundError
from data_stack.formats.parquet import ParquetDataset
from data_stack.plugins import hookimpl
from data_stack_openml.api import ask, field_of

__all__ = ["OpenMLCatalogue", "OpenMLDataset"]

_ARFF, _ROWS = "raw/data.arff", "all/rows.parquet"


@hookimpl
def data_stack_catalogues() -> Mapping[str, Catalogue]:
    """``openml:number`` and ``openml:name@version``."""
    return {"openml": OpenMLCatalogue()}


class OpenMLCatalogue(Catalogue):
    """The datasets of OpenML. It asks the server of ``OPENML_SERVER``, or else openml.org."""

    def find(self, name: CatalogueName, store: StorageConnector | None = None) -> OpenMLDataset:
        """The dataset; of a name without version the newest that is active."""
        number = name.name if name.name.isdecimal() else self._number_of(name)
        description = field_of(ask(f"data/{number}", str(name)), "data_set_description", str(name))
        found = OpenMLDataset(name, description, field_of(ask(f"data/features/{number}", str(name)), "data_features", str(name)))
        if name.version not in (None, found.card.version):
            raise RevisionNotFoundError(f"openml:{number} is version {found.card.version} of its name, not {name.version!r:.40}")
        return found

    def search(self, text: str, limit: int = 20) -> list[CatalogueEntry]:
        """Datasets of exactly that name, of which OpenML has several versions; its API has no other search."""
        return [
            CatalogueEntry(f"openml:{each['name']}@{each['version']}", f"number {each['did']}, {each.get('status', '')}")
            for each in _list(text, "", limit)
        ]

    def _number_of(self, name: CatalogueName) -> str:
        found = _list(name.name, f"/data_version/{name.version}" if name.version else "", 100)
        if found:
            return str(max(found, key=lambda each: int(each["version"]))["did"])
        others = [str(each["version"]) for each in _list(name.name, "", 100)] if name.version else []
        if others:
            raise RevisionNotFoundError(f"OpenML has no {name}; versions are {', '.join(others)}")
        lower = [f"openml:{each['name']}" for each in _list(name.name.lower(), "", 1)]
        near = f". There is {lower[0]}" if lower else "; search its pages, and name the dataset by its number: openml:61"
        raise DatasetNotFoundError(f"OpenML has no active dataset {name}{near}")


def _list(name: str, more: str, limit: int) -> list[dict[str, Any]]:
    answer = ask(f"data/list/data_name/{name}/limit/{limit}/status/active{more}", f"openml:{name}", may_be_missing=True)
    listed = answer.get("data", {}).get("dataset", []) if answer else []
    if not isinstance(listed, list) or not all({"did", "name", "version"} <= each.keys() for each in listed):
        raise CatalogueError(f"OpenML's list of {name!r:.60} is of no form that it documents: update this package")
    return listed


class OpenMLDataset(CatalogueDataset):
    """A dataset of OpenML: dict samples of all its features.

    Args:
        name: of the dataset.
        description: as the API gives it.
        features: the same.
    """

    def __init__(self, name: CatalogueName, description: Mapping[str, Any], features: Mapping[str, Any]) -> None:
        number, version = (str(field_of(description, key, str(name))) for key in ("id", "version"))
        licence, citation = (str(description.get(key) or "") or None for key in ("licence", "citation"))
        page = f"https://www.openml.org/d/{number}"
        md5 = description.get("md5_checksum") or None
        source = ResourceDefinition(_ARFF, str(field_of(description, "url", str(name))), md5_sum=md5)
        text = f"{description.get('name')}\n\n{description.get('description') or ''}"
        super().__init__(DatasetCard(name.folder, version, licence, page, citation), ["all"], [source], text)
        listed = field_of(features, "feature", str(name))
        ignored = {name for name in (str(description.get("row_id_attribute") or ""), *_ignored(description)) if name}
        self._features = {
            str(each["name"]): each
            for each in listed
            if each["name"] not in ignored and "true" not in (each.get("is_ignore"), each.get("is_row_identifier"))
        }
        self._all = [str(each["name"]) for each in listed]
        self._is_sparse = str(description.get("format", "")).lower().startswith("sparse")
        target = description.get("default_target_attribute")
        self._target = target if target in self._features else None
        if not self._features:
            raise CatalogueError(f"OpenML's description of {name} leaves no feature: choose another version")
        others = [each for each in self._features if each != self._target] or list(self._features)
        vars(self)["iterator_meta"] = IteratorMeta(others[0], self._target or others[-1], self._target or others[-1])
        if self._target is not None and self._features[self._target].get("nominal_value"):
            vars(self)["class_names"] = tuple(map(str, self._features[self._target]["nominal_value"]))

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Turn the ARFF file into Parquet."""
        with raw[_ARFF] as resource:
            text = resource.read().decode("utf-8", errors="replace")
        kind = arff.LOD if self._is_sparse else arff.DENSE
        try:
            loaded = arff.loads(text, return_type=kind)
        except (arff.ArffException, ValueError) as error:
            raise CatalogueSchemaError(f"the ARFF file of {self.card.homepage} cannot be read: {error!s:.200}") from error
        attributes = [name for name, _ in loaded["attributes"]]
        if attributes != self._all:
            raise CatalogueSchemaError(f"the ARFF file of {self.card.homepage} has other columns than OpenML says")
        rows = loaded["data"]
        columns = {}
        for position, (name, type_) in enumerate(loaded["attributes"]):
            if name in self._features:
                default = type_[0] if isinstance(type_, list) else 0.0
                values = [row.get(position, default) for row in rows] if kind == arff.LOD else [row[position] for row in rows]
                columns[name] = self._column(name, values)
        with prepared.create(_ROWS) as file:
            pq.write_table(pa.table(columns), file, row_group_size=1 << 16)

    def _column(self, name: str, values: list[Any]) -> pa.Array:
        categories = [str(each) for each in self._features[name].get("nominal_value") or ()]
        if categories and name == self._target:
            codes = {category: code for code, category in enumerate(categories)}
            unknown = next((value for value in values if value is not None and value not in codes), None)
            if unknown is not None:
                raise CatalogueSchemaError(
                    f"the ARFF file of {self.card.homepage} has the class {unknown!r:.60}, OpenML does not"
                )
            return pa.array([-1 if value is None else codes[value] for value in values], pa.int64())
        if self._features[name].get("data_type") == "numeric":
            return pa.array(np.array([np.nan if value is None else value for value in values], np.float64))
        return pa.array([None if value is None else str(value) for value in values], pa.string())

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """All rows."""
        return ParquetDataset(prepared, prefix="all")


def _ignored(description: Mapping[str, Any]) -> list[str]:
    ignored = description.get("ignore_attribute") or []
    return ignored.split(",") if isinstance(ignored, str) else list(ignored)
