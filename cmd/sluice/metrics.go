package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
)

// applyMetrics are what a running apply tells of itself, in base units.
type applyMetrics struct {
	clock    func() time.Time
	registry *prometheus.Registry
	ready    atomic.Bool

	events, rows   *prometheus.CounterVec
	batches, bytes prometheus.Counter
	spilled        prometheus.Counter
	rounds         *prometheus.CounterVec
	version        *prometheus.GaugeVec
	parked         prometheus.Gauge
	lastRound      prometheus.Gauge
	lastCommit     prometheus.Gauge
}

func newApplyMetrics(clock func() time.Time) *applyMetrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "sluice", Subsystem: "apply", Name: name, Help: help}
	}
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "sluice", Subsystem: "apply", Name: name, Help: help}
	}
	if clock == nil {
		clock = time.Now
	}
	m := &applyMetrics{
		clock: clock, registry: prometheus.NewRegistry(),
		events:     prometheus.NewCounterVec(counter("events_total", "Events read, by what became of them."), []string{"fate"}),
		rows:       prometheus.NewCounterVec(counter("rows_total", "Rows of targets that changed."), []string{"change"}),
		batches:    prometheus.NewCounter(counter("batches_total", "Batches that were committed.")),
		bytes:      prometheus.NewCounter(counter("source_bytes_total", "Bytes read from the source.")),
		spilled:    prometheus.NewCounter(counter("spilled_bytes_total", "Bytes written to temporary files because a batch did not fit into memory.")),
		rounds:     prometheus.NewCounterVec(counter("rounds_total", "Looks at the input, by result."), []string{"result"}),
		version:    prometheus.NewGaugeVec(gauge("target_version", "Version of each target."), []string{"target"}),
		parked:     prometheus.NewGauge(gauge("parked_targets", "Targets that stopped and wait for help.")),
		lastRound:  prometheus.NewGauge(gauge("last_round_timestamp_seconds", "When the input was last read to its end.")),
		lastCommit: prometheus.NewGauge(gauge("last_commit_timestamp_seconds", "When a batch was last committed.")),
	}
	m.registry.MustRegister(m.events, m.rows, m.batches, m.bytes, m.spilled, m.rounds, m.version, m.parked, m.lastRound, m.lastCommit)
	return m
}

// watchServer adds what a followed server holds back for the flow.
func (m *applyMetrics) watchServer(retained func() int64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "sluice", Subsystem: "postgres", Name: "retained_wal_bytes",
		Help: "WAL that the server keeps for the flow's replication slot."}, func() float64 { return float64(retained()) }))
}

// watchLag adds how far the source is behind, while it knows.
func (m *applyMetrics) watchLag(of event.Lagging) {
	m.registry.MustRegister(&lagCollector{of, prometheus.NewDesc("sluice_apply_source_lag_records",
		"Records of the source that are not read yet, as of the last look; absent while it is not known.", nil, nil)})
}

type lagCollector struct {
	of   event.Lagging
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *lagCollector) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *lagCollector) Collect(out chan<- prometheus.Metric) {
	if n, ok := c.of.Lag(); ok {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n))
	}
}

// round takes the result of one look at the input in.
func (m *applyMetrics) round(r apply.Result, err error) {
	now := float64(m.clock().UnixNano()) / 1e9
	for fate, n := range map[string]int64{"applied": r.Events.Applied, "stale": r.Events.Stale, "duplicate": r.Events.Duplicate, "poison": r.Events.Poison} {
		m.events.WithLabelValues(fate).Add(float64(n))
	}
	for change, n := range map[string]int64{"inserted": r.Rows.Inserted, "updated": r.Rows.Updated, "deleted": r.Rows.Deleted} {
		m.rows.WithLabelValues(change).Add(float64(n))
	}
	m.batches.Add(float64(r.Batches))
	m.bytes.Add(float64(r.Bytes.Read))
	m.spilled.Add(float64(r.Bytes.Spilled))
	if r.Batches > 0 {
		m.lastCommit.Set(now)
	}
	parked := 0
	for _, t := range r.Targets {
		m.version.WithLabelValues(t.Target).Set(float64(t.Version))
		if t.Parked != nil {
			parked++
		}
	}
	if len(r.Targets) == 0 && r.Target != "" {
		m.version.WithLabelValues(r.Target).Set(float64(r.Version))
	}
	m.parked.Set(float64(parked))
	if err != nil {
		m.rounds.WithLabelValues("failed").Inc()
		m.ready.Store(false)
		return
	}
	m.rounds.WithLabelValues("done").Inc()
	m.lastRound.Set(now)
	m.ready.Store(true)
}

// serve answers /ping, /ready (503 until a round was done) and /metrics until stop
// is called.
func (m *applyMetrics) serve(addr string) (stop func(), err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !m.ready.Load() {
			http.Error(w, "the input was not read to its end yet, or the last try failed", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			m.ready.Store(false)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
		<-done
	}, nil
}
