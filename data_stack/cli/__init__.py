"""The ``data-stack`` command."""
