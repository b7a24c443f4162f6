SHELL := bash
.SHELLFLAGS := -euo pipefail -c

.DEFAULT_GOAL := help
.PHONY: help build demo test test-fast check lint setup-engines fuzz bench bench-quick bench-formats bench-go coverage release-check record-corpus clean

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/sluice, one static binary
	@conformance/prerequisites.sh go
	CGO_ENABLED=0 go build -trimpath -o bin/sluice ./cmd/sluice

demo: build ## apply real change events to a fresh table and show what became of them
	bin/sluice demo

test: setup-engines check ## everything: static checks, all tests, other engines included
	conformance/test.sh

test-fast: ## the tests that need nothing but Go, in their short form
	go test -short ./...

check: ## gofmt, vet, staticcheck, builds for other systems
	@conformance/prerequisites.sh go git
	conformance/check.sh

lint: ## import order, doc.go, file length, forbidden calls
	go test ./internal/lint

setup-engines: ## delta-rs, Spark, object stores and Kafka in build/engines (or SLUICE_ENGINES), once
	@conformance/setup-engines.sh
	@conformance/setup-stores.sh
	@conformance/kafka/setup.sh

FUZZTIME ?= 30s
fuzz: ## every fuzzer for FUZZTIME (30s)
	conformance/fuzz.sh $(FUZZTIME)

BENCH ?=
bench: ## the workloads of docs/benchmarks.md beside other engines, about an hour (BENCH: arguments of bench.py)
	conformance/bench/run.sh --write docs/benchmarks.md $(BENCH)

bench-quick: ## the same over small tables, one run each
	conformance/bench/run.sh --quick $(BENCH)

bench-formats: ## the decoders of every change format, five runs each, into docs/benchmarks.md
	conformance/bench/formats.sh --write docs/benchmarks.md

bench-go: ## every benchmark of the Go packages, once
	go test -run '^$$' -bench . -benchtime 1x ./...

coverage: ## rewrite docs/coverage.md from the names of the tests
	go test ./internal/coverage -rewrite

release-check: ## build every target of a release, static and the same twice
	conformance/release/check.sh

record-corpus: ## record the bundled events anew from PostgreSQL and Debezium
	conformance/debezium/record.sh internal/demodata/debezium-shop

clean: ## remove what was built; the engines stay in build/
	rm -rf bin
