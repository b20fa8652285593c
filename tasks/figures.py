"""MLflow's figures in a folder next to its database.

MLflow itself stores absolute paths, which break when a project moves. It finds this module by the entry point of its
group `mlflow.artifact_repository`.
"""

from pathlib import Path
from urllib.parse import unquote

from mlflow.exceptions import MlflowException
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
from mlflow.tracking import get_tracking_uri

from fedfisher_core.settings import TrackingSettings
from tasks.tracking import SCHEME


class FigureRepository(LocalArtifactRepository):
    """A folder whose path is relative to the folder of the SQLite file with the runs.

    Args:
        artifact_uri: the scheme and a relative path.
        tracking_uri: of the SQLite file; None for MLflow's current one.
        registry_uri: not used.

    Raises:
        MlflowException: runs are in no SQLite file, or the folder lies outside the file's folder.
    """

    def __init__(self, artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        # MLflow's address need not be one that settings allow, so it is not validated.
        database = TrackingSettings.model_construct(mlflow=tracking_uri or get_tracking_uri()).database
        path = Path(unquote(artifact_uri.removeprefix(SCHEME)))
        if database is None or path.is_absolute() or ".." in path.parts:
            raise MlflowException(f"figures at {artifact_uri} can only be found next to a SQLite file")
        super().__init__((database.absolute().parent / path).as_uri(), tracking_uri, registry_uri)
