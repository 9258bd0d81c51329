"""Decoding of files that hold one value, such as the pictures of a folder."""

from __future__ import annotations

from typing import Any

from data_stack.codecs.codec import MEDIA_KINDS, Codec, Codecs, media_kind
from data_stack.codecs.registry import codec_of, registered_types, type_of_bytes
from data_stack.exception import DatasetFileCorruptError, MissingDependencyError, RequestLimitError
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in
from data_stack.util.request_limit import current_request


def decode_file(codec: Codec, data: bytes, name: str, hint: str = "") -> Any:
    """Decode a file; its value counts towards the limit of the current request.

    Args:
        codec: decodes the file.
        data: the bytes of the file.
        name: the name of the file, for messages.
        hint: advice at the end of the message about bytes that the codec refuses.

    Raises:
        RequestLimitError: the request decodes too much.
        MissingDependencyError: the codec needs a package that is not installed.
        DatasetFileCorruptError: the codec refuses the bytes; the message ends with ``hint``.
    """
    try:
        value = codec.decode(data)
        if codec.is_compressed:
            current_request().add(value)
        return value
    except RequestLimitError as error:
        raise error.at(name) from error
    except (MemoryError, MissingDependencyError):
        # The file may be whole: the machine lacks memory or a package.
        raise
    except Exception as error:  # a codec may raise anything
        check_no_stand_in(bytes(data[:HEAD_BYTES]), name, len(data))
        problem = f"{type(error).__name__}: {str(error)[:300]}"
        raise DatasetFileCorruptError(f"{name} cannot be decoded: {problem}{hint}") from error


class ContentCodecs:
    """Finds the codecs of pictures and recordings by their contents, and makes each codec once.

    The content decides, as many files have the suffix of another format of the same kind. Threads
    may share it.

    Args:
        codecs: custom codecs by type.
    """

    #: Custom codecs by type.
    _codecs: Codecs | None
    #: The codecs that were made, by the type of the content and the type of the name.
    _made: dict[tuple[str | None, str], Codec]

    def __init__(self, codecs: Codecs | None = None) -> None:
        self._codecs = codecs
        self._made = {}

    def codec_of(self, data: bytes, type_name: str) -> Codec:
        """Return the codec of a file.

        Args:
            data: the file.
            type_name: the type by the suffix of its name, such as ``"jpg"``. It is used where the
                content is of no known type, or of another kind (an image, sound, a video).

        Raises:
            ValueError: the file is empty.
        """
        if not data:
            raise ValueError("the file is empty: it has 0 bytes")
        content_type = type_of_bytes(data[:16])
        codec = self._made.get((content_type, type_name))
        if codec is None:
            if content_type is not None and _are_of_one_media_kind(content_type, type_name):
                codec = codec_of(content_type, self._codecs)
            else:
                codec = codec_of(type_name, self._codecs)
            self._made[content_type, type_name] = codec
        return codec


def _are_of_one_media_kind(one_type: str, other_type: str) -> bool:
    """Return whether two types are both images, both sound or both videos."""
    kind = _kind_of_type(one_type)
    return kind in MEDIA_KINDS and kind == _kind_of_type(other_type)


def _kind_of_type(type_name: str) -> str:
    """Return ``"image"``, ``"audio"``, ``"video"`` or another kind; ``""`` of an unknown type."""
    codec_class = registered_types().get(type_name)
    if codec_class is None:
        return ""
    return media_kind(codec_class.media_type)
