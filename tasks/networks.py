"""Global networks as models of MLflow, which serves them without this project's store."""

import logging
import threading
from typing import TYPE_CHECKING

from fedfisher_core.engine.errors import in_one_line
from fedfisher_core.engine.locks import scratch
from fedfisher_core.reporting.runs import Network

if TYPE_CHECKING:
    from pathlib import Path

    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

ALIAS = "best"
"""The alias of the version that is the best so far."""

log = logging.getLogger("fedfisher")

_ARTIFACT = "artifact"
_TRACING = threading.Lock()
"""Runs are recorded side by side, and torch traces one network at a time in a process."""


def keep(client: "MlflowClient", experiment_id: str, run_id: str, network: Network) -> None:
    """Let a run hold its network as a model, and register it if it is the best of its benchmark.

    A network that can't be traced or is no longer in the store is named in a warning, and costs the run nothing else.
    Others of its benchmark that fail for the same reason are not named again, except for the best.
    """
    model = _held(client, run_id, network)
    if model is None:
        with scratch() as folder:
            try:
                with _TRACING:
                    _save(network, folder / "model")
            except Exception as error:  # noqa: BLE001 - a network of a plug-in may fail in any way.
                _warn(network, in_one_line(error))
                return
            model = _log(client, experiment_id, run_id, network, folder / "model")
    if network.is_best:
        _register(client, run_id, network, model)


_warned: set[tuple[str, str]] = set()


def _warn(network: Network, reason: str) -> None:
    """Warn of a benchmark's best network, and of another one unless an equal reason was given for one before."""
    with _TRACING:
        known = (network.name, reason) in _warned
        _warned.add((network.name, reason))
    if network.is_best or not known:
        log.warning("MLflow keeps no network of %s: %s", network, reason)


def _held(client: "MlflowClient", run_id: str, network: Network) -> "LoggedModel | None":
    """Find the model of a run that was made of the same network."""
    outputs = client.get_run(run_id).outputs
    models = (client.get_logged_model(one.model_id) for one in (outputs.model_outputs if outputs else []))
    return next((model for model in models if model.tags.get(_ARTIFACT) == network.artifact), None)


def _save(network: Network, path: "Path") -> None:
    """Write a network as MLflow serves it: a traced graph without pickled code."""
    import numpy
    import torch
    from mlflow.models import ModelSignature
    from mlflow.pytorch import save_model
    from mlflow.types import Schema, TensorSpec

    module, examples = network.load()
    with torch.no_grad():
        outputs = module(examples)
    taken, given = (TensorSpec(one.numpy().dtype, (-1, *one.shape[1:])) for one in (examples, outputs))
    save_model(
        module,
        str(path),
        signature=ModelSignature(Schema([taken]), Schema([given])),
        input_example=examples.numpy(),
        serialization_format="pt2",
        # Otherwise MLflow finds them out in a process of its own, for many seconds.
        pip_requirements=[f"torch=={torch.__version__.partition('+')[0]}", f"numpy=={numpy.__version__}"],
    )


def _log(client: "MlflowClient", experiment_id: str, run_id: str, network: Network, path: "Path") -> "LoggedModel":
    from mlflow.entities import LoggedModelOutput

    tags = {**network.tags, _ARTIFACT: network.artifact}
    model = client.create_logged_model(experiment_id, network.name, source_run_id=run_id, tags=tags)
    client.log_model_artifacts(model.model_id, str(path))
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    return model


def _register(client: "MlflowClient", run_id: str, network: Network, model: "LoggedModel") -> None:
    """Make a model the best version of the registered model of its benchmark, unless it is."""
    from mlflow import MlflowException

    try:
        client.create_registered_model(network.name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    held = client.search_model_versions(f"name = '{network.name}'")
    version = next(
        (one.version for one in held if one.run_id == run_id and one.tags.get(_ARTIFACT) == network.artifact), None
    )
    if version is None:
        place, known = model.artifact_location, model.model_id
        version = client.create_model_version(network.name, place, run_id, tags=model.tags, model_id=known).version
    client.set_registered_model_alias(network.name, ALIAS, str(version))
