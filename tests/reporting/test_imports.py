import subprocess
import sys


def test_reports_are_read_and_printed_without_torch() -> None:
    code = """
import importlib, pkgutil, sys
import fedfisher_core.reporting
from fedfisher_core.experiments import benchmark, fedfish_toy, privacy_attack, two_layer
from fedfisher_core.experiments.privacy_attack import summary
from fedfisher_core.experiments.benchmark import clients as costs
from fedfisher_core.experiments.benchmark import figures
from fedfisher_core.experiments.benchmark import published
from fedfisher_core.experiments.benchmark import summary
from fedfisher_core.experiments.fedfish_toy import summary as findings
from fedfisher_core.experiments.fedfish_toy import summary
from fedfisher_core.experiments.two_layer import findings

for one in pkgutil.iter_modules(fedfisher_core.reporting.__path__, "fedfisher_core.reporting."):
    importlib.import_module(one.name)
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
