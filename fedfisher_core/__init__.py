"""The science of the benchmark; it knows nothing of orchestration, tracking and versioning. Words: docs/glossary.md."""
