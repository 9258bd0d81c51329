"""A dataset of OpenML: an ARFF file, prepared as Parquet."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from data_stack import (
    CatalogueDataset,
    CatalogueName,
    DatasetCard,
    DatasetIteratorIF,
    IteratorMeta,
    PreparedResources,
    ResourceDefinition,
    Resources,
)
from data_stack.exception import CatalogueError, CatalogueSchemaError
from data_stack_openml.api import as_list, file_url

if TYPE_CHECKING:
    import pyarrow as pa

    from data_stack_openml.arff_file import ArffFile, Attribute

_ARFF: Final = "raw/data.arff"
_ROWS: Final = "all/rows.parquet"

#: Number of rows of a row group of the prepared file.
_ROWS_PER_GROUP: Final = 1 << 16


class OpenMLDataset(CatalogueDataset):
    """A dataset of OpenML, whose samples are dicts of its features.

    Args:
        name: name of the dataset, such as ``openml:61``.
        description: description of the dataset, from the API.
        features: features of the dataset, from the API.

    Raises:
        CatalogueError: the description ignores all features, or leads to a URL to which a server
            must not lead.
    """

    #: Names of all features, in the order of the file.
    _feature_names: list[str]

    #: The features that are columns, by name: those that the description does not ignore.
    _used_features: dict[str, Mapping[str, Any]]

    #: Names of the targets that are columns.
    _target_names: list[str]

    #: The column of the target. Several targets become one column, a dict of them.
    _target_column: str

    #: The column whose categories are stored as their positions: the target, or the last column.
    _coded_column: str

    #: Whether the file lists only the values of a row that are not zero.
    _is_sparse: bool

    def __init__(
        self,
        name: CatalogueName,
        description: Mapping[str, Any],
        features: Sequence[Mapping[str, Any]],
    ) -> None:
        super().__init__(
            _card_of(name, description),
            ["all"],
            [_source_of(name, description)],
            description=f"{description.get('name')}\n\n{description.get('description') or ''}",
        )
        self._feature_names = [feature["name"] for feature in features]
        self._used_features = _find_used_features(description, features)
        if not self._used_features:
            raise CatalogueError(
                f"OpenML's description of {name} ignores all features: choose another version"
            )
        self._is_sparse = str(description.get("format", "")).lower().startswith("sparse")

        declared_targets = _find_target_names(description, self._feature_names)
        self._target_names = [name for name in declared_targets if name in self._used_features]
        other_names = [name for name in self._used_features if name not in self._target_names]
        if not other_names:
            other_names = list(self._used_features)
        self._choose_target_column(other_names)

        # A factory of an author has these as class variables. This class serves many datasets, so
        # each object has its own.
        self.iterator_meta = IteratorMeta(  # type: ignore[misc]
            other_names[0], self._coded_column, self._coded_column
        )
        # Several targets are one column without categories.
        categories = self._categories(self._coded_column)
        if categories:
            self.class_names = tuple(categories)  # type: ignore[misc]

    def _choose_target_column(self, other_names: Sequence[str]) -> None:
        """Set the column of the target, and the column whose categories become positions.

        Args:
            other_names: names of the columns that are no targets.
        """
        if len(self._target_names) == 1:
            self._target_column = self._target_names[0]
        else:
            self._target_column = _unused_name("targets", self._feature_names)
        if self._target_names:
            self._coded_column = self._target_column
        else:
            self._coded_column = other_names[-1]

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Convert the ARFF file to Parquet."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from data_stack_openml.arff_file import decode_arff, read_arff

        with raw[_ARFF] as resource:
            text, encoding = decode_arff(resource.read())
        guessed_encoding = None
        if not encoding.startswith("utf"):
            guessed_encoding = encoding
            warnings.warn(
                f"the ARFF file of {self.card.homepage} is not in UTF-8; it is read as {encoding}",
                stacklevel=2,
            )
        try:
            file = read_arff(text, is_sparse=self._is_sparse)
            columns = self._columns_of(file, guessed_encoding)
        except ValueError as error:
            raise CatalogueSchemaError(
                f"the ARFF file of {self.card.homepage} cannot be read: {error!s:.200}"
            ) from error

        if len(self._target_names) > 1:
            targets = [columns.pop(name) for name in self._target_names]
            columns[self._target_column] = pa.StructArray.from_arrays(targets, self._target_names)
        with prepared.create(_ROWS) as stored:
            pq.write_table(pa.table(columns), stored, row_group_size=_ROWS_PER_GROUP)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Open all rows."""
        from data_stack.formats.parquet import ParquetDataset

        return ParquetDataset(prepared, prefix="all")

    def _columns_of(self, file: ArffFile, guessed_encoding: str | None) -> dict[str, pa.Array]:
        """Return the columns of the features that are used.

        Args:
            file: the file.
            guessed_encoding: its encoding, if that is a guess; None if it is certain.

        Raises:
            ValueError: the file differs from OpenML's description.
        """
        if [attribute.name for attribute in file.attributes] != self._feature_names:
            raise ValueError("its columns differ from OpenML's features")
        columns = {}
        for position, attribute in enumerate(file.attributes):
            if attribute.name in self._used_features:
                texts = file.values(position)
                if guessed_encoding is not None:
                    self._check_letters(attribute.name, texts, guessed_encoding)
                columns[attribute.name] = self._column_of(attribute, texts)
        return columns

    def _column_of(self, attribute: Attribute, texts: list[str | None]) -> pa.Array:
        """Return the column of a feature; categories become codes only in the coded column.

        Raises:
            ValueError: a number is malformed, or a category is none that OpenML lists.
        """
        from data_stack_openml.columns import codes_of, column_of

        categories = self._categories(attribute.name)
        if categories and attribute.name == self._coded_column:
            return codes_of(texts, categories)
        return column_of(attribute, texts)

    def _check_letters(self, name: str, texts: Sequence[str | None], encoding: str) -> None:
        """Check that the letters of categories are those of OpenML's list, as far as it has one.

        Raises:
            ValueError: a category is another one, so the encoding was guessed wrongly.
        """
        categories = set(self._categories(name))
        if not categories:
            return
        for text in set(texts):
            if text is not None and not text.isascii() and text not in categories:
                raise ValueError(
                    f"it is not in UTF-8, and as {encoding} the category {text!r:.60} of "
                    f"{name!r:.60} is none that OpenML lists; tell its owner"
                )

    def _categories(self, name: str) -> list[str]:
        """Return the categories of a feature; empty if it has none."""
        feature = self._used_features.get(name, {})
        return as_list(feature.get("nominal_value") or [])


# ------------------------------------------------------------------- the description of a dataset


def _card_of(name: CatalogueName, description: Mapping[str, Any]) -> DatasetCard:
    """Return the card of a dataset."""
    return DatasetCard(
        name.folder,
        version=str(description["version"]),
        license=_text_of(description, "licence"),
        homepage=f"https://www.openml.org/d/{description['id']}",
        citation=_text_of(description, "citation"),
    )


def _source_of(name: CatalogueName, description: Mapping[str, Any]) -> ResourceDefinition:
    """Return the definition of the ARFF file of a dataset.

    Raises:
        CatalogueError: the description leads to a URL to which a server must not lead.
    """
    return ResourceDefinition(
        _ARFF,
        file_url(description["url"], str(name)),
        md5_sum=description.get("md5_checksum") or None,
    )


def _text_of(description: Mapping[str, Any], key: str) -> str | None:
    """Return the text of a key; None if it is missing or empty."""
    value = description.get(key)
    if not value:
        return None
    return str(value) or None


def _find_used_features(
    description: Mapping[str, Any], features: Sequence[Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Return the features by name, without numbers of rows and those that are to be ignored."""
    ignored_names = {
        *_split_names(description.get("row_id_attribute")),
        *_split_names(description.get("ignore_attribute")),
    }
    used = {}
    for feature in features:
        name = feature["name"]
        is_ignored = name in ignored_names or feature.get("is_ignore") == "true"
        is_row_identifier = feature.get("is_row_identifier") == "true"
        if not is_ignored and not is_row_identifier:
            used[name] = feature
    return used


def _split_names(names: str | list[str] | None) -> list[str]:
    """Return the names of features, from a list or a text with commas."""
    if isinstance(names, str):
        return names.split(",")
    return names or []


def _find_target_names(description: Mapping[str, Any], features: Sequence[str]) -> list[str]:
    """Return the targets of a description, each once."""
    given = description.get("default_target_attribute")
    if given in features:
        return [str(given)]  # its name may contain commas
    return list(dict.fromkeys(_split_names(given)))


def _unused_name(name: str, used_names: Sequence[str]) -> str:
    """Return a name that is not used."""
    return f"{name}_" if name in used_names else name
