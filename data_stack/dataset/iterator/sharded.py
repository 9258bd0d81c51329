"""The part of an iterator's samples that one of several ranks has."""
