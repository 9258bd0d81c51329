"""A progress bar that leaves nothing in a notebook."""

from __future__ import annotations

import io
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

if TYPE_CHECKING:
    _Tqdm = tqdm[Any]
else:
    _Tqdm = tqdm


class NotebookBar(_Tqdm):
    """A bar in an output of its own, empty once the bar is closed.

    tqdm's own bars leave a line in the saved notebook: on standard error, which notebooks show in red, or in place of a widget.

    Args:
        arguments: as for ``tqdm.tqdm``.
        options: as for ``tqdm.tqdm``.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._output: Any = None
        super().__init__(*arguments, **{**options, "leave": False, "file": io.StringIO()})

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Show ``msg``, by default the bar, in place of what was shown before."""
        text = str(self) if msg is None else msg
        shown = {"text/plain": text} if text else {"text/plain": "", "text/html": ""}
        if self._output is not None:
            self._output.update(shown, raw=True)
        elif text:
            self._output = import_module("IPython.display").display(shown, raw=True, display_id=True)
