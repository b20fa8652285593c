"""The template and the style of the report page, as package data."""
