"""The site: docs and reports as one set of pages, built by `make site` without a network."""
