"""Which columns a layer makes of those below, and what a meta then says of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_stack.dataset.iterator.layers.columns_layer import choose_columns, derive_meta
from data_stack.dataset.iterator.layers.dicts import name_columns
from data_stack.dataset.iterator.layers.renamed import rename_columns
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.exception import ConfigError
from data_stack.values.stacking import SampleForm

_TUPLES = SampleForm.tuples(3)
_DICTS = SampleForm("dict", ("image", "label", "source"))
_META = replace(
    DatasetMeta(IteratorMeta(0, 1, 2), "id", "name", "tag"),
    target_kind="label",
    class_names=("cat", "dog"),
    column_names=("image", "label", "source"),
)
_NAMES = ("image", "label", "source")


def test_chosen_columns_of_tuples_are_numbered_anew() -> None:
    layout = choose_columns((2, -2), _TUPLES, as_tuples=False)

    assert layout.keys_below == (2, 1)
    assert layout.form == SampleForm.tuples(2)
    assert layout.leaves_out_columns


def test_chosen_columns_of_dicts_keep_their_keys() -> None:
    layout = choose_columns(("label",), _DICTS, as_tuples=False)

    assert layout.form == SampleForm("dict", ("label",))


def test_no_columns_are_all_columns() -> None:
    layout = choose_columns((), _DICTS, as_tuples=True)

    assert layout.keys_below == ("image", "label", "source")
    assert layout.form == SampleForm.tuples(3)
    assert not layout.leaves_out_columns


def test_two_columns_swap_their_names() -> None:
    layout = rename_columns({"image": "label", "label": "image"}, _DICTS)

    assert layout.form.keys == ("label", "image", "source")
    assert layout.find_below(["image"]) == ["label"]


def test_a_new_name_that_another_column_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is such a column"):
        rename_columns({"image": "label"}, _DICTS)


def test_tuples_need_a_name_for_each_column() -> None:
    with pytest.raises(ConfigError, match="samples of 3 columns were given 2 names"):
        name_columns(["image", "label"], _TUPLES)


def test_a_meta_follows_columns_that_move() -> None:
    layout = choose_columns((1, 0), _TUPLES, as_tuples=False)

    meta = derive_meta(_META, layout, _NAMES)

    assert (meta.sample_pos, meta.target_pos) == (1, 0)
    assert meta.column_names == ("label", "image")
    assert meta.class_names == ("cat", "dog")


def test_a_meta_forgets_a_target_that_is_left_out() -> None:
    layout = choose_columns((0,), _TUPLES, as_tuples=False)

    meta = derive_meta(_META, layout, _NAMES)

    assert meta.target_pos == "target"
    assert meta.class_names is None
    assert meta.target_kind is None


def test_a_meta_of_dicts_has_their_keys_as_positions() -> None:
    meta = derive_meta(_META, name_columns(_NAMES, _TUPLES), _NAMES)

    assert (meta.sample_pos, meta.target_pos, meta.tag_pos) == _NAMES
    assert meta.column_names is None
