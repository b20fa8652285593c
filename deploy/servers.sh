#!/usr/bin/env bash
# Prefect's and MLflow's servers for a team, on PostgreSQL. deploy/README.md says how to start it.
#
#   DATABASE          postgresql://USER:PASSWORD@HOST:PORT, with the databases of databases.sql
#   TEAM_PASSWORD     of the user `admin` of both servers, at least 12 characters
#   HOST              where they listen (127.0.0.1)
#   PREFECT_PORT      (4200)
#   MLFLOW_PORT       (5000)
#   MLFLOW_FIGURES    where MLflow keeps figures: a folder, or s3://BUCKET/PREFIX (mlartifacts)
#   MLFLOW_SERVER_ALLOWED_HOSTS   names by which MLflow may be called, with a star for any port, such as
#                                 mlflow.example:* (localhost and private addresses)
set -euo pipefail

require() {
  if [ -z "${!1:-}" ]; then
    echo "servers.sh: $1 is not set; $2" >&2
    exit 2
  fi
}

require DATABASE "allowed: postgresql://USER:PASSWORD@HOST:PORT"
require TEAM_PASSWORD "allowed: at least 12 characters"
case "$DATABASE" in
  postgresql://*) ;;
  # Its value holds a password.
  *) echo "servers.sh: DATABASE must begin with postgresql://" >&2; exit 2 ;;
esac
if [ "${#TEAM_PASSWORD}" -lt 12 ]; then
  echo "servers.sh: TEAM_PASSWORD has ${#TEAM_PASSWORD} characters; allowed: at least 12" >&2
  exit 2
fi

host=${HOST:-127.0.0.1}
place=${DATABASE#postgresql://}
place=${place%/}
# A folder that only its owner can look into.
private=$(mktemp -d)
end() {
  kill $(jobs -p) 2> /dev/null || true
  wait
  rm -rf "$private"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# In this format a percent sign is written twice. Hashing a password is slow by design, and a recorded run is seven
# requests or more, so that who has proved one is known for a minute.
cat > "$private/users.ini" <<END
[mlflow]
default_permission = EDIT
database_uri = postgresql+psycopg://${place//%/%%}/mlflow_users
admin_username = admin
admin_password = ${TEAM_PASSWORD//%/%%}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
END

# Neither phones home.
export DO_NOT_TRACK=1 PREFECT_SERVER_ANALYTICS_ENABLED=false MLFLOW_DISABLE_TELEMETRY=true

# Servers get passwords by their environment, so that a list of processes shows none.
PREFECT_API_DATABASE_CONNECTION_URL="postgresql+asyncpg://$place/prefect" \
PREFECT_SERVER_API_AUTH_STRING="admin:$TEAM_PASSWORD" \
  prefect server start --host "$host" --port "${PREFECT_PORT:-4200}" &
prefect=$!

MLFLOW_BACKEND_STORE_URI="postgresql+psycopg://$place/mlflow" \
MLFLOW_AUTH_CONFIG_PATH="$private/users.ini" \
MLFLOW_FLASK_SERVER_SECRET_KEY=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n') \
MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false \
  mlflow server --app-name basic-auth --host "$host" --port "${MLFLOW_PORT:-5000}" \
  --artifacts-destination "${MLFLOW_FIGURES:-mlartifacts}" &
mlflow=$!

# Where one of them ends, so does the other. macOS has a bash without `wait -n`.
while kill -0 "$prefect" 2> /dev/null && kill -0 "$mlflow" 2> /dev/null; do
  sleep 1
done
for server in "$prefect" "$mlflow"; do
  # The exit code is that of the one that has ended.
  kill -0 "$server" 2> /dev/null || wait "$server"
done
