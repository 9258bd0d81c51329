"""``petastorm.transform``: what is made of rows."""

from data_stack.formats.parquet.transform import TransformSpec, edit_field, transform_schema

__all__ = ["TransformSpec", "edit_field", "transform_schema"]
