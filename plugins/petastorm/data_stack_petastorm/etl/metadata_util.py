"""Shows the schema and the row-group indexes of a dataset: a command, ``python -m``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from data_stack.exception import ConfigError
from data_stack_petastorm.etl.dataset_metadata import get_schema_from_dataset_url
from data_stack_petastorm.etl.rowgroup_indexing import get_row_group_indexes

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Show the metadata of a Parquet dataset")
    parser.add_argument("--dataset-url", required=True, help="URL or path of the dataset")
    parser.add_argument("--schema", action="store_true", help="show the schema alone")
    parser.add_argument("--index", action="store_true", help="show the row-group indexes alone")
    parser.add_argument("--print-values", action="store_true", help="show the row groups of each value")
    parser.add_argument("--skip-index", nargs="+", default=[], help="indexes whose values are not shown")
    parser.add_argument("--hdfs-driver", help="has no effect")
    given = parser.parse_args(arguments)
    lines = []
    if given.schema or not given.index:
        lines += ["*** Schema from dataset metadata ***", str(get_schema_from_dataset_url(given.dataset_url))]
    if given.index or not given.schema:
        lines += ["*** Row group indexes from dataset metadata ***"]
        try:
            indexes = get_row_group_indexes(given.dataset_url)
        except ConfigError as error:  # it has none
            indexes, lines = {}, [*lines, str(error)]
        for name, index in indexes.items():
            lines.append(f"Index: {name}")
            for value in [] if name in given.skip_index else index.indexed_values:
                groups = sorted(index.get_row_group_indexes(value))
                lines.append(f"  -- {value}({len(groups)})" + (f" {groups}" if given.print_values else ""))
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
