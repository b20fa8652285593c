"""Packages as others would write them; tests install them as they are."""
