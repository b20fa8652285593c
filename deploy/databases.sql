-- The databases of deploy/servers.sh: flows, runs, and who may see these.
CREATE DATABASE prefect;
CREATE DATABASE mlflow;
CREATE DATABASE mlflow_users;
