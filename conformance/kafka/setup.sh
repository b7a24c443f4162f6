#!/usr/bin/env bash
# Sets up Apache Kafka and the Apicurio registry for the conformance tests of the
# Kafka source, from their Maven artifacts.
#
#   setup.sh
#
# They go to $SLUICE_ENGINES/kafka, by default build/engines/kafka in the repository.
# A finished setup leaves the versions it was made from in versions.stamp, and a later
# run with the same versions does nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${SLUICE_ENGINES:-$here/../../build/engines}/kafka
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

exec 9>"$dir/.lock"
if command -v flock >/dev/null 2>&1; then flock 9; fi # two runs at once take turns

# shellcheck source=versions.env
. "$here/versions.env"
stamp="kafka $KAFKA slf4j $SLF4J apicurio $APICURIO"
if [ "$(cat "$dir/versions.stamp" 2>/dev/null)" = "$stamp" ]; then
  exit 0
fi
"$here/../prerequisites.sh" java mvn

echo "setting up Kafka $KAFKA and Apicurio $APICURIO in $dir (200 MB, once)" >&2
rm -rf "$dir/versions.stamp" "$dir/libs" "$dir/registry" "$dir/pom.xml"
cat >"$dir/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sluice</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$KAFKA</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$KAFKA</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>$SLF4J</version></dependency>
  </dependencies>
</project>
POM
mvn -q -B -Dstyle.color=never -f "$dir/pom.xml" "org.apache.maven.plugins:maven-dependency-plugin:$MAVEN_DEPENDENCY_PLUGIN:copy-dependencies" \
  -DincludeScope=runtime "-DoutputDirectory=$dir/libs" </dev/null >&2
mvn -q -B -Dstyle.color=never "org.apache.maven.plugins:maven-dependency-plugin:$MAVEN_DEPENDENCY_PLUGIN:copy" \
  "-Dartifact=io.apicurio:apicurio-registry-app:$APICURIO:tar.gz:all" "-DoutputDirectory=$dir" </dev/null >&2
mkdir "$dir/registry"
tar -xzf "$dir/apicurio-registry-app-$APICURIO-all.tar.gz" -C "$dir/registry"
rm "$dir/apicurio-registry-app-$APICURIO-all.tar.gz"
echo "$stamp" >"$dir/versions.stamp"
