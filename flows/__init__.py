"""Prefect flows that wire the tasks, and the `fedfisher` command."""
