"""Prefect tasks: each computes jobs of one step of the pipeline."""

from tasks.environment import prepare

prepare()
