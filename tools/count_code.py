"""Counts lines of code: a line counts if it holds a token that is neither a comment nor part of a docstring.

python tools/count_code.py data_stack plugins          lines of code and of text, by folder
python tools/count_code.py --large data_stack plugins   files above 500 lines and functions above 60
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

MAX_LINES_OF_A_FILE = 500
MAX_LINES_OF_A_FUNCTION = 60

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def count_code_lines(source: str) -> int:
    """Lines of a module that hold code; strings that stand alone are documentation."""
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documentation.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - documentation)


def find_large(path: Path) -> Iterator[str]:
    """What of a file is longer than it should be, in words."""
    source = path.read_text(encoding="utf-8")
    n_lines = source.count("\n")
    if n_lines > MAX_LINES_OF_A_FILE:
        yield f"{path}: {n_lines} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_LINES_OF_A_FUNCTION:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines"


def find_python_files(folders: Sequence[str]) -> list[Path]:
    """The modules below some folders, sorted by path."""
    return sorted(path for folder in folders for path in Path(folder).rglob("*.py"))


def main(arguments: Sequence[str]) -> int:
    """Print a table, or what is too large; 1 if anything is."""
    parser = argparse.ArgumentParser(description="Count lines of code, without docstrings and comments.")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--large", action="store_true", help="list files and functions that are too long")
    options = parser.parse_args(arguments)
    paths = find_python_files(options.folders)
    if options.large:
        large = [each for path in paths for each in find_large(path)]
        print(*large, sep="\n")
        return bool(large)
    code: collections.Counter[str] = collections.Counter()
    text: collections.Counter[str] = collections.Counter()
    for path in paths:
        source = path.read_text(encoding="utf-8")
        folder = "/".join(path.parts[:-1][:3])
        code[folder] += count_code_lines(source)
        text[folder] += source.count("\n")
    for folder, n_lines in code.most_common():
        print(f"{n_lines:7d} {text[folder]:7d} {folder}")
    print(f"{code.total():7d} {text.total():7d} together")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
