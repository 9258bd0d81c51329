"""The globals in Petastorm's pickles: the names in ``pickled_globals.tsv``, which are never imported.

Collected from the datasets of Petastorm 0.4.0 to 0.13.1, Python 2 and 3, numpy 1 and 2. Any other name is refused.
It has the packages of Petastorm before its publication, and how numpy 0 to 2 pickle types on 64-bit Linux. Decimals of Spark take
precision and scale from their state; Parquet has neither the padding nor the length of its char and varchar.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class KnownGlobal:
    """A known global: a label, not the object that it names.

    Attributes:
        role: the allowed use: "schema", "field", "codec", "indexer", "spark type", "type", "base" or "function".
        name: our name for it; several spellings may share a name.
        type: the type of a field of this type; None if it is not a type of a field.
    """

    role: str
    name: str
    type: Any = None


def _known(row: dict[str, str]) -> KnownGlobal:
    type_ = (
        Decimal if row["type"] == "Decimal" else getattr(np, row["type"]) if row["type"] else None
    )
    return KnownGlobal(row["role"], row["name"], type_)


_TABLE = (files(__package__) / "pickled_globals.tsv").read_text(encoding="ascii")
#: By module and name, ``"numpy.int8"``.
KNOWN_GLOBALS = {
    row["global"]: _known(row) for row in csv.DictReader(_TABLE.splitlines(), delimiter="\t")
}
