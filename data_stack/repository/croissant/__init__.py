"""Croissant, the vocabulary of MLCommons for datasets (https://docs.mlcommons.org/croissant)."""
