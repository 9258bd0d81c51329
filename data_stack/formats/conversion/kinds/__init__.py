"""The formats, one module each: a class with ``@register_format`` is all that a new one needs."""
