"""Kinds of experiments, one package each: settings, jobs, rows, page, table for the terminal, runs for MLflow."""
