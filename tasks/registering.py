"""The best network of a benchmark as a registered model of MLflow, which serves it without this project's store."""

import logging
from typing import TYPE_CHECKING

from fedfisher_core.engine.errors import in_one_line
from fedfisher_core.engine.locks import scratch
from fedfisher_core.reporting.runs import Registered

if TYPE_CHECKING:
    from pathlib import Path

    from mlflow import MlflowClient

ALIAS = "best"
"""The alias of the version that is the best so far."""

log = logging.getLogger("fedfisher")

_ARTIFACT = "artifact"


def register(client: "MlflowClient", experiment_id: str, run_id: str, wanted: Registered) -> None:
    """Make a network the best version of its registered model, unless it is.

    A network that can't be traced or is no longer in the store is named in a warning, and costs the run nothing else.
    """
    held = client.search_model_versions(f"name = '{wanted.name}'")
    version = next(
        (one.version for one in held if one.run_id == run_id and one.tags.get(_ARTIFACT) == wanted.artifact), None
    )
    if version is None:
        with scratch() as folder:
            try:
                _save(wanted, folder / "model")
            except Exception as error:  # noqa: BLE001 - a network of a plug-in may fail in any way.
                log.warning("no network is registered as %r: %s", wanted.name, in_one_line(error))
                return
            version = _upload(client, experiment_id, run_id, wanted, folder / "model")
    client.set_registered_model_alias(wanted.name, ALIAS, str(version))


def _save(wanted: Registered, path: "Path") -> None:
    """Write the network as MLflow serves it: a traced graph without pickled code."""
    import numpy
    import torch
    from mlflow.models import ModelSignature
    from mlflow.pytorch import save_model
    from mlflow.types import Schema, TensorSpec

    network, examples = wanted.load()
    with torch.no_grad():
        outputs = network(examples)
    taken, given = (TensorSpec(one.numpy().dtype, (-1, *one.shape[1:])) for one in (examples, outputs))
    save_model(
        network,
        str(path),
        signature=ModelSignature(Schema([taken]), Schema([given])),
        input_example=examples.numpy(),
        serialization_format="pt2",
        # Otherwise MLflow finds them out in a process of its own, for many seconds.
        pip_requirements=[f"torch=={torch.__version__.partition('+')[0]}", f"numpy=={numpy.__version__}"],
    )


def _upload(client: "MlflowClient", experiment_id: str, run_id: str, wanted: Registered, path: "Path") -> str:
    from mlflow import MlflowException
    from mlflow.entities import LoggedModelOutput

    tags = {**wanted.tags, _ARTIFACT: wanted.artifact}
    model = client.create_logged_model(experiment_id, wanted.name, source_run_id=run_id, tags=tags)
    client.log_model_artifacts(model.model_id, str(path))
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    try:
        client.create_registered_model(wanted.name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    place, known = model.artifact_location, model.model_id
    return client.create_model_version(wanted.name, place, run_id, tags=tags, model_id=known).version
