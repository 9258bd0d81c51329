"""The pictures of an answer."""

from __future__ import annotations

from typing import Any, Final

from data_stack.agents.limits import Limits
from data_stack.exception import DataStackError
from data_stack.show.display_value import to_display_value

#: Kinds of values that are returned as pictures.
_KINDS_OF_PICTURES: Final = ("image", "mask")


class Album:
    """The pictures of an answer.

    Args:
        limits: the limits of the answer.
        is_open: whether pictures are wanted.
    """

    #: PNG files.
    pictures: list[bytes]

    #: Why a picture was left out; None if none was.
    problem: str | None

    #: The limits of the answer.
    _limits: Limits

    #: Whether pictures are wanted.
    _is_open: bool

    #: How many bytes the next pictures may have together.
    _bytes_left: int

    def __init__(self, limits: Limits, *, is_open: bool) -> None:
        self.pictures = []
        self.problem = None
        self._limits = limits
        self._is_open = is_open
        self._bytes_left = limits.max_picture_bytes

    def add(self, value: Any, hint: str | None) -> Any:
        """Return what an answer shows of a value, and add its picture if it is one."""
        shown = to_display_value(value, hint)
        if shown.kind not in _KINDS_OF_PICTURES or not self._is_open:
            return value
        number = self._draw(value, hint)
        if number is None:
            return value
        facts: dict[str, Any] = {"picture": number}
        if isinstance(value, (bytes, bytearray, memoryview)):
            facts["file"] = value
        facts["dtype"] = str(shown.data.dtype)
        facts["shape"] = list(shown.data.shape)
        return facts

    def _draw(self, value: Any, hint: str | None) -> int | None:
        """Draw a picture, and return its number; None if it is left out."""
        if len(self.pictures) >= self._limits.max_pictures:
            self.problem = f"an answer has at most {self._limits.max_pictures} pictures"
            return None
        try:
            # Pillow, which the extra `images` brings, may be missing.
            from data_stack.show.pictures import as_png

            picture = as_png(value, max_pixels=self._limits.max_picture_pixels, hint=hint)
        except DataStackError as error:
            self.problem = str(error)
            return None
        if len(picture) > self._bytes_left:
            self.problem = (
                f"the pictures of an answer have at most {self._limits.max_picture_bytes:,} bytes"
            )
            return None
        self._bytes_left -= len(picture)
        self.pictures.append(picture)
        return len(self.pictures)
