"""Thin Prefect tasks: read artifacts, call the core, write artifacts, return references."""
