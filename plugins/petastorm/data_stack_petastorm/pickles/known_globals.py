"""The names of classes and functions that Petastorm's pickles contain; none of them is imported.

The table ``known_globals.tsv`` was collected from datasets of Petastorm 0.4.0 to 0.13.1, of Python
2 and 3, and of numpy 1 and 2. It also has the names that Petastorm's packages had before its
publication (``av.…``), and the types of numpy as numpy 0 to 2 pickle them on 64-bit Linux. A name
that is not in the table is refused.

Spark's types have their names in the table, with two simplifications. The name of a decimal type
lacks the precision and scale, which are attributes in a pickle. Char and varchar have the name
"string", because Parquet files keep neither their length nor their padding.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from typing import Any, Final

import numpy as np


@dataclass(frozen=True, slots=True)
class KnownGlobal:
    """A label for a class or function of a pickle, not the class or function itself.

    Attributes:
        role: what it may be used for: "schema", "field", "codec", "indexer" and "spark type" are
            classes of objects, "type" is the type of a field, "base" a base class of an object,
            and "function" a function (or a class) that is called.
        name: our name for it; several spellings may share a name.
        type: the type of a field that has this global as its type; None if no field can.
    """

    role: str
    name: str
    type: Any = None


def _type_of_field(name: str) -> Any:
    """Return the type of a field by its name in the table; None for an empty name."""
    if not name:
        return None
    if name == "Decimal":
        return Decimal
    return getattr(np, name)


def _read_table() -> dict[str, KnownGlobal]:
    """Return the rows of ``known_globals.tsv`` by module and name of their globals."""
    table = files(__package__) / "known_globals.tsv"
    lines = table.read_text(encoding="ascii").splitlines()
    known_globals = {}
    for row in csv.DictReader(lines, delimiter="\t"):
        field_type = _type_of_field(row["type"])
        known_globals[row["global"]] = KnownGlobal(row["role"], row["name"], field_type)
    return known_globals


#: The known globals by module and name, such as ``"numpy.int8"``.
KNOWN_GLOBALS: Final = _read_table()
