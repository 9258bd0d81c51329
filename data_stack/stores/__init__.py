"""Stored datasets as wholes: inventory, copies, removal, verification, publishing."""
