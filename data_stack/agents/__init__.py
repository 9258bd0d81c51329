"""Datasets for coding agents: the tools of ``data-stack mcp``."""
