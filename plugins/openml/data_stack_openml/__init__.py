"""Datasets of OpenML: ``data_stack.load("openml:61")``; by the API that https://www.openml.org/apis documents."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

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
from data_stack.exception import (
    CatalogueError,
    CatalogueSchemaError,
    DatasetNotFoundError,
    RevisionNotFoundError,
)
from data_stack.plugins import hookimpl
from data_stack_openml.api import ask, file_url

if TYPE_CHECKING:
    import pyarrow as pa

    from data_stack_openml.columns import Attribute

__all__ = ["OpenMLCatalogue", "OpenMLDataset"]

_ARFF, _ROWS = "raw/data.arff", "all/rows.parquet"
#: Shapes of the used parts of answers. Their JSON is converted from XML: a list of one entry may be the entry, a number a text.
_NUMBER: Final = (int, str)
_SEVERAL: Final = (str, [str])
_DESCRIPTION: Final = {
    "data_set_description": {
        "id": _NUMBER,
        "version": _NUMBER,
        "url": str,
        "name?": str,
        "description?": object,
        "format?": str,
        "licence?": str,
        "citation?": object,
        "md5_checksum?": str,
        "default_target_attribute?": _SEVERAL,
        "row_id_attribute?": _SEVERAL,
        "ignore_attribute?": _SEVERAL,
    }
}
_FEATURE: Final = {
    "name": str,
    "data_type?": str,
    "nominal_value?": _SEVERAL,
    "is_ignore?": str,
    "is_row_identifier?": str,
}
_FEATURES: Final = {"data_features": {"feature": ([_FEATURE], _FEATURE)}}
_LIST: Final = {
    "data": {"dataset": [{"did": _NUMBER, "name": str, "version": _NUMBER, "status?": str}]}
}


@hookimpl
def data_stack_catalogues() -> Mapping[str, Catalogue]:
    """``openml:number`` and ``openml:name@version``."""
    return {"openml": OpenMLCatalogue()}


class OpenMLCatalogue(Catalogue):
    """The datasets of OpenML, from the server ``OPENML_SERVER`` or openml.org."""

    def find(self, name: CatalogueName, store: StorageConnector | None = None) -> OpenMLDataset:
        """Return the dataset; for a name without version, the newest active one."""
        number = name.name if name.name.isdecimal() else self._number_of(name)
        description = ask(f"data/{number}", str(name), _DESCRIPTION)["data_set_description"]
        features = ask(f"data/features/{number}", str(name), _FEATURES)["data_features"]["feature"]
        found = OpenMLDataset(name, description, _as_list(features))
        if name.version not in (None, found.card.version):
            raise RevisionNotFoundError(
                f"openml:{number} has version {found.card.version}, not {name.version!r:.40}"
            )
        return found

    def search(self, text: str, limit: int = 20) -> list[CatalogueEntry]:
        """Return all versions of the dataset of exactly this name; the API has no other search."""
        return [
            CatalogueEntry(
                f"openml:{each['name']}@{each['version']}",
                f"number {each['did']}, {each.get('status', '')}",
            )
            for each in _list(text, "", limit)
        ]

    def _number_of(self, name: CatalogueName) -> str:
        found = _list(name.name, f"/data_version/{name.version}" if name.version else "", 100)
        if found:
            return str(max(found, key=lambda each: float(each["version"]))["did"])
        others = (
            [str(each["version"]) for each in _list(name.name, "", 100)] if name.version else []
        )
        if others:
            raise RevisionNotFoundError(
                f"OpenML has no {name}; it has the versions {', '.join(others)}"
            )
        raise DatasetNotFoundError(
            f"OpenML has no active dataset {name}; search its pages, and use the number of the dataset: openml:61"
        )


def _list(name: str, more: str, limit: int) -> list[dict[str, Any]]:
    path = f"data/list/data_name/{name}/limit/{limit}/status/active{more}"
    answer = ask(path, f"openml:{name}", _LIST, may_be_missing=True)
    return answer["data"]["dataset"] if answer else []


class OpenMLDataset(CatalogueDataset):
    """A dataset of OpenML, whose samples are dicts of its features.

    Args:
        name: name of the dataset.
        description: description from the API.
        features: features from the API.
    """

    def __init__(
        self,
        name: CatalogueName,
        description: Mapping[str, Any],
        features: Sequence[Mapping[str, Any]],
    ) -> None:
        number, version = str(description["id"]), str(description["version"])
        license_name, citation = (
            str(description.get(key) or "") or None for key in ("licence", "citation")
        )
        page = f"https://www.openml.org/d/{number}"
        source = ResourceDefinition(
            _ARFF,
            file_url(description["url"], str(name)),
            md5_sum=description.get("md5_checksum") or None,
        )
        text = f"{description.get('name')}\n\n{description.get('description') or ''}"
        super().__init__(
            DatasetCard(name.folder, version, license_name, page, citation), ["all"], [source], text
        )
        ignored = {
            *_names(description.get("row_id_attribute")),
            *_names(description.get("ignore_attribute")),
        }
        self._features = {
            each["name"]: each
            for each in features
            if each["name"] not in ignored
            and "true" not in (each.get("is_ignore"), each.get("is_row_identifier"))
        }
        self._all = [each["name"] for each in features]
        self._is_sparse = str(description.get("format", "")).lower().startswith("sparse")
        self._targets = [
            each for each in _target_names(description, self._all) if each in self._features
        ]
        if not self._features:
            raise CatalogueError(
                f"OpenML's description of {name} ignores all features: choose another version"
            )
        others = [each for each in self._features if each not in self._targets] or list(
            self._features
        )
        # Several targets become one field, a dict of them, with a name that no feature has.
        self._target = (
            self._targets[0]
            if len(self._targets) == 1
            else "targets" + "_" * ("targets" in self._all)
        )
        target = self._target if self._targets else others[-1]
        self._coded = target
        vars(self)["iterator_meta"] = IteratorMeta(others[0], target, target)
        if categories := self._categories(target):
            vars(self)["class_names"] = tuple(categories)

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Convert the ARFF file to Parquet."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from data_stack_openml.columns import decode_arff, read_arff

        with raw[_ARFF] as resource:
            text, encoding = decode_arff(resource.read())
        if not encoding.startswith("utf"):
            warnings.warn(
                f"the ARFF file of {self.card.homepage} is not in UTF-8; it is read as {encoding}",
                stacklevel=2,
            )
        try:
            attributes, values = read_arff(text, is_sparse=self._is_sparse)
            if [each.name for each in attributes] != self._all:
                raise ValueError("its columns differ from OpenML's features")
            columns = {}
            for position, attribute in enumerate(attributes):
                if attribute.name in self._features:
                    texts = values(position)
                    if not encoding.startswith("utf"):
                        self._check_letters(attribute.name, texts, encoding)
                    columns[attribute.name] = self._column(attribute, texts)
        except ValueError as error:
            raise CatalogueSchemaError(
                f"the ARFF file of {self.card.homepage} cannot be read: {error!s:.200}"
            ) from error
        if len(self._targets) > 1:
            targets = {name: columns.pop(name) for name in self._targets}
            columns[self._target] = pa.StructArray.from_arrays(
                list(targets.values()), list(targets)
            )
        with prepared.create(_ROWS) as file:
            pq.write_table(pa.table(columns), file, row_group_size=1 << 16)

    def _column(self, attribute: Attribute, values: list[str | None]) -> pa.Array:
        from data_stack_openml.columns import codes_of, column_of

        categories = self._categories(attribute.name)
        if categories and attribute.name == self._coded:
            return codes_of(values, categories)
        return column_of(attribute, values)

    def _check_letters(self, name: str, values: Sequence[str | None], encoding: str) -> None:
        """Check that the letters of categories are those of OpenML's list, as far as it has one.

        Raises:
            ValueError: a category is another one, so the encoding was guessed wrongly.
        """
        known = set(self._categories(name))
        for value in set(values) if known else ():
            if value is not None and not value.isascii() and value not in known:
                raise ValueError(
                    f"it is not in UTF-8, and as {encoding} the category {value!r:.60} of {name!r:.60} "
                    f"is none that OpenML lists; tell its owner"
                )

    def _categories(self, name: str) -> list[str]:
        return _as_list(self._features.get(name, {}).get("nominal_value") or [])

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Open all rows."""
        from data_stack.formats.parquet import ParquetDataset

        return ParquetDataset(prepared, prefix="all")


def _as_list(entries: Any) -> list[Any]:
    """Return entries as a list; in JSON converted from XML, a single entry is not a list."""
    return entries if isinstance(entries, list) else [entries]


def _names(names: str | list[str] | None) -> list[str]:
    """Return the names of features, from a list or a text with commas."""
    return names.split(",") if isinstance(names, str) else names or []


def _target_names(description: Mapping[str, Any], features: Sequence[str]) -> list[str]:
    """Return the targets of a description; a name may contain commas."""
    given = description.get("default_target_attribute")
    return [str(given)] if given in features else list(dict.fromkeys(_names(given)))
