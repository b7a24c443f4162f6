#!/usr/bin/env bash
# Records a small corpus from a real PostgreSQL through a real Debezium.
#
#   record.sh OUTDIR
#
# Writes events.jsonl, expected/TABLE.jsonl, corpus.json, connector.properties,
# schema.sql and README.md into OUTDIR. Needs PostgreSQL 15, Java 17, Maven.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out/expected"
out=$(cd "$out" && pwd)

pgbin=${PGBIN:-/usr/lib/postgresql/15/bin}
need() { [ -x "$1" ] || command -v "$1" >/dev/null || { echo "record.sh: $2 is missing; install it with: $3" >&2; exit 2; }; }
need "$pgbin/initdb" "PostgreSQL 15" "apt-get install postgresql-15"
need java "Java 17" "apt-get install openjdk-17-jdk-headless"
need mvn "Maven" "apt-get install maven"

work=$(mktemp -d)
chmod 755 "$work"
as_pg() { if [ "$(id -u)" = 0 ]; then (cd / && runuser -u postgres -- "$@"); else "$@"; fi; }
[ "$(id -u)" != 0 ] || install -d -o postgres "$work/pg"
cleanup() {
  [ -z "${recorder:-}" ] || kill "$recorder" 2>/dev/null || true
  as_pg "$pgbin/pg_ctl" -D "$work/pg/data" -m immediate stop >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
mkdir -p "$work/pg"

port=$(python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])')
as_pg "$pgbin/initdb" -D "$work/pg/data" -U shop --auth=trust --encoding=UTF8 --locale=C >/dev/null
as_pg "$pgbin/pg_ctl" -D "$work/pg/data" -l "$work/pg/log" -w -o "-p $port -h 127.0.0.1 -k $work/pg -c wal_level=logical -c timezone=UTC -c fsync=off" start >/dev/null
psql=("$pgbin/psql" -qX -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$port" -U shop)
"${psql[@]}" -d postgres -c 'create database shop'
"${psql[@]}" -d shop -f "$here/schema.sql"

cp -r "$here/recorder" "$work/build"
mvn -q -B -f "$work/build/pom.xml" package

cat > "$out/connector.properties" <<PROPS
name=recorder
connector.class=io.debezium.connector.postgresql.PostgresConnector
plugin.name=pgoutput
slot.name=shop
publication.name=shop
publication.autocreate.mode=filtered
database.hostname=127.0.0.1
database.user=shop
database.password=shop
database.dbname=shop
topic.prefix=shop
schema.include.list=public
snapshot.mode=initial
PROPS
{
  cat "$out/connector.properties"
  echo "database.port=$port"
  echo "offset.storage=org.apache.kafka.connect.storage.MemoryOffsetBackingStore"
} > "$work/run.properties"
java -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$work/build/target/classes:$work/build/target/lib/*" \
  Recorder "$work/run.properties" "$out/events.jsonl" > "$work/recorder.out" 2> "$work/recorder.err" &
recorder=$!
for _ in $(seq 300); do
  grep -q 'snapshot done' "$work/recorder.out" && break
  kill -0 "$recorder" 2>/dev/null || { cat "$work/recorder.err" >&2; exit 1; }
  sleep 0.2
done
snapshot=$(wc -l < "$out/events.jsonl")
"${psql[@]}" -d shop -f "$here/workload.sql"
"${psql[@]}" -d shop -Atc "select pg_logical_emit_message(true, 'end', '')" >/dev/null
wait "$recorder" || { cat "$work/recorder.err" >&2; exit 1; }
recorder=

for t in customers orders order_lines; do
  "${psql[@]}" -d shop -At -f "$here/expected-$t.sql" > "$out/expected/$t.jsonl"
done
cp "$here/schema.sql" "$out/schema.sql"
lines=$(wc -l < "$out/events.jsonl")
pgv=$("${psql[@]}" -d shop -Atc 'show server_version')
cat > "$out/corpus.json" <<JSON
{
  "name": "debezium-shop",
  "versions": {"PostgreSQL": "$pgv", "Debezium": "3.6.1.Final (embedded engine)"},
  "snapshot_lines": $snapshot,
  "lines": $lines,
  "keys": {"customers": ["id"], "orders": ["id"], "order_lines": ["order_id", "line_no"]}
}
JSON
cat > "$out/README.md" <<MD
# debezium-shop

A small shop, recorded from PostgreSQL $pgv by Debezium 3.6.1.Final (embedded engine) with
\`conformance/debezium/record.sh\`. $lines records, the first $snapshot from the initial snapshot. It holds
a changed key, a re-created key, a value stored out of line that an update does not send, a rolled-back
transaction and several changes of one row in one transaction. Settings are the connector's defaults:
schemas in every record, exact decimals.

- \`events.jsonl\`: one record a line; key and value as the connector's JSON converter wrote them.
- \`expected/TABLE.jsonl\`: what the database held after the last event, in the row form of the command line.
- \`schema.sql\`, \`connector.properties\`: how it was made.
MD
echo "recorded $lines records into $out"
