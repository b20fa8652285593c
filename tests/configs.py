"""The settings files of the project."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFIGS = sorted(path for path in (ROOT / "configs").glob("*.yaml") if path.name != "dvc.yaml")
"""One an experiment; DVC's stages of them lie next to them."""
