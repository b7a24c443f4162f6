#!/usr/bin/env python3
"""Runs the workloads of the benchmark: sluice and its peers as whole processes, in
turns, and prints one table of medians.

    bench.py [--quick] [--rows N] [--runs N] [--only W1,W8] [--dir DIR] [--write FILE]

--quick takes smaller tables and one run each. Tables are made once and kept in DIR
(default build/bench); every run works on a fresh copy. Memory is the peak resident
size of the process; bytes written are those of files that a run added to the table.
Processor time is user and system time: on a machine with other work it says more
than the time on the clock. This process stays small, since the system counts its
size at the start of a child into the child's peak.
"""

import argparse
import datetime
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ENGINES = os.path.join(os.environ.get("SLUICE_ENGINES", os.path.join(ROOT, "build/engines")), "bench")
PYTHON = os.path.join(ENGINES, "venv/bin/python")


class Bench:
    def __init__(self, o):
        self.o, self.dir = o, os.path.abspath(o.dir)
        os.makedirs(self.dir, exist_ok=True)
        self.sluice, self.sdk = self.dir + "/sluice", self.dir + "/sdk"
        for out, package in ((self.sluice, "./cmd/sluice"), (self.sdk, "./conformance/bench")):
            subprocess.run(["go", "build", "-o", out, package], cwd=ROOT, check=True)
        self.work = f"{self.dir}/work-{os.getpid()}"  # two runs at once do not meet
        self.results = []

    def made(self, kind, *args):
        """A table or file of tables.py, made if it is not there yet."""
        path = f"{self.dir}/{kind}-{'-'.join(map(str, args))}" + {"orders": "", "log": "", "debezium": ".jsonl.zst", "arrow": ".arrow"}.get(kind, ".parquet")
        if not os.path.exists(path):
            shutil.rmtree(path + ".tmp", ignore_errors=True)
            name = path + ".tmp" + (".jsonl.zst" if kind == "debezium" else "")
            subprocess.run([PYTHON, HERE + "/tables.py", kind, name, *map(str, args)], check=True)
            os.rename(name, path)
        return path

    def copy(self, base, vectors=False, feed=True):
        """A fresh copy of a table; data files are linked, no writer changes one."""
        path = self.work
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(base, path, copy_function=lambda a, b: shutil.copy(a, b) if "_delta_log" in a else os.link(a, b))
        steps = [["set", "delta.enableDeletionVectors=true", "--upgrade"]] if vectors else []
        if not feed:  # Sail refuses a table that knows the feed at all
            steps = [["set", "delta.enableChangeDataFeed=false"], *steps, ["drop-feature", "changeDataFeed"]]
        for s in steps:
            subprocess.run([self.sluice, "alter", path, *s], check=True, stdout=subprocess.DEVNULL)
        return path

    def run(self, argv, table):
        before = files(table)
        start = time.monotonic()
        # Files, since a pipe that nobody empties would stop a talkative child.
        with tempfile.TemporaryFile() as o, tempfile.TemporaryFile() as e:
            p = subprocess.Popen(argv, stdout=o, stderr=e, cwd=self.dir)
            _, status, use = os.wait4(p.pid, 0)
            o.seek(0), e.seek(0)
            out, err = o.read(), e.read()
        wall = time.monotonic() - start
        if status != 0:
            raise RuntimeError(f"{' '.join(argv)}: {(err or out).decode()[-2000:]}")
        added = sum(size for name, size in files(table).items() if name not in before)
        return {"wall": wall, "cpu": use.ru_utime + use.ru_stime, "rss": use.ru_maxrss / 1024, "written": added / 1e6,
                "said": (out.decode().strip().splitlines() or [""])[-1]}

    def compare(self, name, contenders, per=1):
        """contenders: name -> (prepare, argv of the table). The first one is sluice."""
        runs = {c: [] for c in contenders}
        skipped = {}
        for i in range(self.o.runs + (0 if self.o.quick else 1)):
            for c, (prepare, argv, count) in contenders.items():
                if c in skipped:
                    continue
                try:
                    table = prepare()
                    r = self.run(argv(table), table)
                except (RuntimeError, subprocess.CalledProcessError) as e:
                    skipped[c] = str(e).strip().splitlines()[-1][:160]
                    continue
                for k in ("wall", "cpu", "written"):
                    r[k] /= count
                if i > 0 or self.o.quick:  # the first is a warm-up
                    runs[c].append(r)
                print(f"  {name} {c}: {r['wall']:.2f} s, cpu {r['cpu']:.2f} s, {r['rss']:.0f} MB, {r['written']:.1f} MB written: {r['said'][:110]}", file=sys.stderr)
        first = None
        for c in contenders:
            if c in skipped:
                self.results.append([name, c, "failed: " + skipped[c].replace("|", "/")] + [""] * 5)
                continue
            m = {k: statistics.median(r[k] for r in runs[c]) for k in ("wall", "cpu", "rss", "written")}
            first = first or m
            ratio = "" if m is first else f"{m['wall'] / first['wall']:.1f}x / {m['cpu'] / first['cpu']:.1f}x / {m['rss'] / first['rss']:.1f}x"
            self.results.append([name, c, f"{m['wall']:.2f}", f"{m['cpu']:.2f}", f"{m['rss']:.0f}", f"{m['written']:.1f}", ratio])

    def apply(self, table, source, *more):
        return [self.sluice, "apply", "--into", table, "--from", source, "--format", "rows", "--keys", "id", "--sequence-by", "seq",
                "--apply-as-deletes", "op = 'D'", "--except-columns", "op", "-o", "json", "--progress", "none", *more]

    def peer(self, *argv):
        return [PYTHON, HERE + "/peers.py", *map(str, argv)]

    # The workloads of the table in docs/benchmarks.md.

    def W1(self):
        n, k = self.o.rows, self.o.changes
        base, batch = self.made("orders", n), self.made("changes", n, k)
        self.compare("W1", {
            "sluice": (lambda: self.copy(base, vectors=True), lambda t: self.apply(t, batch), 1),
            "delta-rs, copy-on-write": (lambda: self.copy(base), lambda t: self.peer("deltars", "merge", t, batch), 1),
            "Sail, no feed": (lambda: self.copy(base, vectors=True, feed=False), lambda t: self.peer("sail", "merge", t, batch), 1)})

    def W1c(self):
        n, k = self.o.rows, self.o.changes
        base, batch = self.made("orders", n), self.made("changes", n, k)
        self.compare("W1c", {
            "sluice": (lambda: self.copy(base), lambda t: self.apply(t, batch), 1),
            "delta-rs": (lambda: self.copy(base), lambda t: self.peer("deltars", "merge", t, batch), 1)})

    def W2(self):
        n, k = self.o.rows, self.o.changes
        base, batch = self.made("orders", n), self.made("newest", n, k)
        self.compare("W2", {
            "sluice": (lambda: self.copy(base, vectors=True), lambda t: self.apply(t, batch), 1),
            "delta-rs": (lambda: self.copy(base), lambda t: self.peer("deltars", "merge", t, batch), 1)})

    def stream(self):
        count, each = (10, 1000) if self.o.quick else (100, 5000)
        return count, each, self.made("orders", self.o.rows), self.made("stream", self.o.rows, count, each)

    def W3(self):
        count, each, base, batch = self.stream()
        few = 2 if self.o.quick else 10
        self.compare("W3 (per batch)", {
            "sluice": (lambda: self.copy(base, vectors=True), lambda t: self.apply(t, batch, "--batch-rows", str(each)), count),
            "delta-rs": (lambda: self.copy(base), lambda t: self.peer("deltars", "merges", t, batch, each, few), few)})

    def W4(self):
        keys, n = (50_000 if self.o.quick else 1_000_000), self.o.changes
        first, batch = self.made("history", keys), self.made("changes", keys, n)
        base = f"{self.dir}/scd2-{keys}"
        if not os.path.exists(base):
            shutil.rmtree(base + ".tmp", ignore_errors=True)
            subprocess.run(self.apply(base + ".tmp", first, "--stored-as", "2", "--flow", "f", "--property", "delta.enableDeletionVectors=true"), check=True, stdout=subprocess.DEVNULL)
            os.rename(base + ".tmp", base)
        self.compare("W4", {"sluice": (lambda: self.copy(base), lambda t: self.apply(t, batch, "--stored-as", "2", "--flow", "f"), 1)})

    def W5(self):
        count, each, base, batch = self.stream()
        fed = f"{self.dir}/fed-{self.o.rows}-{count}-{each}"
        if not os.path.exists(fed):
            subprocess.run(self.apply(self.copy(base), batch, "--batch-rows", str(each)), check=True, stdout=subprocess.DEVNULL)
            os.rename(self.work, fed)
        self.compare("W5", {
            "sluice": (lambda: fed, lambda t: [self.sdk, "feed", t], 1),
            "delta-rs": (lambda: fed, lambda t: self.peer("deltars", "cdf", t), 1)})

    def W6(self):
        base = self.made("log", *((10_000, 1000) if self.o.quick else (100_000, 10_000)))
        self.compare("W6", {
            "sluice": (lambda: base, lambda t: [self.sdk, "open", t, "5000500"], 1),
            "delta-rs": (lambda: base, lambda t: self.peer("deltars", "open", t, 5000500), 1)})

    def W7(self):
        events, keys = (100_000, 50_000) if self.o.quick else (1_000_000, 500_000)
        source = self.made("debezium", events, keys)

        def fresh():
            shutil.rmtree(self.work, ignore_errors=True)
            return self.work
        self.compare("W7", {"sluice": (fresh, lambda t: [self.sluice, "apply", "--into", t, "--from", source, "--keys", "id", "-o", "json", "--progress", "none",
                                       "--schema", "id BIGINT, customer_id BIGINT, status STRING, city STRING, amount DOUBLE, quantity INT, note STRING, discount DOUBLE, updated_at BIGINT"], 1)})

    def W8(self):
        n = self.o.rows
        base = self.made("orders", n)
        low = n // 2 * 2
        for work, args in (("scan", []), ("count", []), ("filter", [low, low + n // 500])):
            self.compare("W8 " + work, {
                "sluice": (lambda: base, lambda t: [self.sdk, work, t, *map(str, args)], 1),
                "delta-rs": (lambda: base, lambda t: self.peer("deltars", work, t, *args), 1),
                "DuckDB over the files": (lambda: base, lambda t: self.peer("duckdb", work, t, *args), 1)})

    def W9(self):
        source = self.made("arrow", self.o.rows)

        def fresh():
            shutil.rmtree(self.work, ignore_errors=True)
            return self.work
        self.compare("W9", {
            "sluice": (fresh, lambda t: [self.sdk, "append", t, source], 1),
            "delta-rs": (fresh, lambda t: self.peer("deltars", "append", t, source), 1)})

    def report(self):
        versions = dict(line.strip().split("=") for line in open(HERE + "/versions.env") if "=" in line)
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        mem = next(int(x.split()[1]) >> 20 for x in open("/proc/meminfo") if x.startswith("MemTotal"))
        cpu = next((x.split(":")[1].strip() for x in open("/proc/cpuinfo") if x.startswith("model name")), platform.machine())
        load = os.getloadavg()[0]
        out = [f"{datetime.date.today()}, sluice {commit}, {os.cpu_count()} cores ({cpu}), {mem} GiB, {self.o.rows:,} rows, {self.o.changes:,} changes, "
               f"{'one run' if self.o.quick else f'medians of {self.o.runs} after a warm-up'}, warm page cache. "
               f"delta-rs {versions['DELTALAKE']}, Sail {versions['PYSAIL']}, DuckDB {versions['DUCKDB']}. "
               + (f"**The machine was busy** (load {load:.0f}): compare processor time, not the clock." if load > os.cpu_count() + 1 else "The machine was quiet."), "",
               "| Work | Contender | Time s | Processor s | Peak MB | Written MB | Time / processor / memory against sluice |", "|---|---|---|---|---|---|---|"]
        out += ["| " + " | ".join(r[:7]) + " |" for r in self.results]
        return "\n".join(out) + "\n"


def files(table):
    out = {}
    for d, _, names in os.walk(table):
        for n in names:
            out[os.path.join(d, n)] = os.path.getsize(os.path.join(d, n))
    return out


WORKS = ["W1", "W1c", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--quick", action="store_true")
    p.add_argument("--rows", type=int)
    p.add_argument("--changes", type=int)
    p.add_argument("--runs", type=int)
    p.add_argument("--only", default=",".join(WORKS))
    p.add_argument("--dir", default=ROOT + "/build/bench")
    p.add_argument("--write", help="put the table between the marks of this file")
    o = p.parse_args()
    o.rows = o.rows or (500_000 if o.quick else 10_000_000)
    o.changes = o.changes or (10_000 if o.quick else 100_000)
    o.runs = o.runs or (1 if o.quick else 5)
    b = Bench(o)
    for w in o.only.split(","):
        getattr(b, w)()
    text = b.report()
    print(text)
    if o.write:
        old = open(o.write, encoding="utf-8").read()
        head, rest = old.split("<!-- table -->\n", 1)
        tail = rest.split("<!-- end of table -->\n", 1)[1]
        open(o.write, "w", encoding="utf-8").write(head + "<!-- table -->\n" + text + "<!-- end of table -->\n" + tail)
    shutil.rmtree(b.work, ignore_errors=True)


if __name__ == "__main__":
    main()
