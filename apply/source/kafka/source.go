package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-data/sluice/apply/event"
)

// Source yields the records of topics; it implements event.Source. It is used
// from one goroutine.
type Source struct {
	opt Options
	pos map[string]event.Position
	// Warn, if set, hears of what is passed over under AllowLoss.
	Warn func(format string, args ...any)
	lag  atomic.Int64 // records behind what is read; -1: not known
}

// New makes a source; nothing is dialled before records are asked for.
func New(o Options) *Source {
	if o.Idle == 0 {
		o.Idle = time.Minute
	}
	s := &Source{opt: o, pos: map[string]event.Position{}}
	s.lag.Store(-1)
	return s
}

// partition is one that is read, from next up to end.
type partition struct {
	topic     string
	num       int32
	source    string
	next, end int64
	high      int64 // the high watermark: behind end while transactions are open
}

type partKey struct {
	topic string
	num   int32
}

// Records implements event.Source: every partition up to the last stable offset
// that it has now. Partitions interleave; inside one the order is that of offsets.
func (s *Source) Records(ctx context.Context, from map[string]event.Position) iter.Seq2[*event.Record, error] {
	return func(yield func(*event.Record, error) bool) {
		parts, err := s.plan(ctx, from)
		if err != nil {
			s.lag.Store(-1)
			yield(nil, err)
			return
		}
		s.behind(parts)
		if err := s.consume(ctx, parts, yield); err != nil {
			s.lag.Store(-1)
			yield(nil, err)
		}
	}
}

// consume reads the partitions to their ends.
func (s *Source) consume(ctx context.Context, parts map[partKey]*partition, yield func(*event.Record, error) bool) error {
	start := map[string]map[int32]kgo.Offset{}
	open := 0
	for k, p := range parts {
		if p.next >= p.end {
			continue
		}
		if start[k.topic] == nil {
			start[k.topic] = map[int32]kgo.Offset{}
		}
		start[k.topic][k.num] = kgo.NewOffset().At(p.next)
		open++
	}
	if open == 0 {
		return nil
	}
	cl, err := kgo.NewClient(append(slices.Clone(s.opt.Client), kgo.SeedBrokers(s.opt.Brokers...), kgo.ConsumePartitions(start),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NoResetOffset()))...)
	if err != nil {
		return fmt.Errorf("open kafka client: %w", err)
	}
	defer cl.Close()
	for open > 0 {
		wait, cancel := context.WithTimeout(ctx, s.opt.Idle)
		fetches := cl.PollFetches(wait)
		idle := wait.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				return &readError{fmt.Sprintf("read topic %s partition %d", e.Topic, e.Partition), e.Err}
			}
		}
		if idle && fetches.NumRecords() == 0 {
			return s.stalled(parts)
		}
		s.behind(parts)
		for _, r := range fetches.Records() {
			p := parts[partKey{r.Topic, r.Partition}]
			if p == nil || p.next >= p.end || r.Offset < p.next {
				continue
			}
			if r.Offset >= p.end {
				p.next = p.end // only a gap was left
			} else {
				p.next = r.Offset + 1
			}
			s.pos[p.source] = event.Position{Source: p.source, Offset: p.next}
			if p.next >= p.end {
				open--
			}
			if r.Attrs.IsControl() || r.Offset >= p.end {
				continue
			}
			if !yield(recordOf(p, r), nil) {
				return nil
			}
		}
	}
	s.behind(parts)
	return nil
}

// behind notes the lag: the records, gaps among them, up to the ends of the partitions
// when they were last looked at, those of open transactions too.
func (s *Source) behind(parts map[partKey]*partition) {
	n := int64(0)
	for _, p := range parts {
		n += max(p.high-p.next, 0)
	}
	s.lag.Store(n)
}

// Lag implements event.Lagging.
func (s *Source) Lag() (int64, bool) {
	n := s.lag.Load()
	return n, n >= 0
}

// Outage tells whether an error is one that ends by itself: brokers that are down, out of
// reach, or between two leaders.
func Outage(err error) bool {
	var own *Error
	if errors.As(err, &own) {
		return own.Code == "KAFKA_UNREACHABLE" || own.Code == "KAFKA_STALLED"
	}
	var broken net.Error
	var read *readError
	return errors.As(err, &read) && (kerr.IsRetriable(err) || errors.As(err, &broken) || errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded))
}

// readError is an answer of the brokers, or none.
type readError struct {
	what string
	err  error
}

func (e *readError) Error() string { return e.what + ": " + e.err.Error() }

// Unwrap gives the cause.
func (e *readError) Unwrap() error { return e.err }

func (s *Source) stalled(parts map[partKey]*partition) error {
	var left []string
	for k, p := range parts {
		if p.next < p.end {
			left = append(left, fmt.Sprintf("%s/%d at %d of %d", k.topic, k.num, p.next, p.end))
		}
	}
	slices.Sort(left)
	return &Error{"KAFKA_STALLED", fmt.Sprintf("no record came for %s though the brokers have some: %s", s.opt.Idle, strings.Join(left, ", "))}
}

// recordOf keeps a null value nil and an empty one empty.
func recordOf(p *partition, r *kgo.Record) *event.Record {
	out := &event.Record{
		Source: p.source, Topic: r.Topic, Partition: r.Partition, Transport: r.Offset, End: r.Offset + 1, Line: r.Offset,
		Key: r.Key, Value: r.Value, Raw: r.Value, Size: int64(len(r.Key) + len(r.Value)),
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, event.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

// Positions implements event.Source.
func (s *Source) Positions() ([]event.Position, error) {
	out := make([]event.Position, 0, len(s.pos))
	for _, k := range slices.Sorted(maps.Keys(s.pos)) {
		out = append(out, s.pos[k])
	}
	return out, nil
}

// Close implements event.Source.
func (s *Source) Close() error { return nil }

// Sample reads the first n records there are, without a position.
func (s *Source) Sample(ctx context.Context, n int) ([]*event.Record, error) {
	var out []*event.Record
	peek := New(s.opt)
	peek.opt.Start = ""
	for r, err := range peek.Records(ctx, nil) {
		if err != nil {
			return nil, err
		}
		if out = append(out, r); len(out) == n {
			break
		}
	}
	return out, nil
}

// plan finds the partitions and where to read them.
func (s *Source) plan(ctx context.Context, from map[string]event.Position) (map[partKey]*partition, error) {
	cl, err := kgo.NewClient(append(slices.Clone(s.opt.Client), kgo.SeedBrokers(s.opt.Brokers...), kgo.RetryTimeout(15*time.Second))...)
	if err != nil {
		return nil, fmt.Errorf("open kafka client: %w", err)
	}
	defer cl.Close()
	if err := cl.Ping(ctx); err != nil && ctx.Err() == nil {
		return nil, &Error{"KAFKA_UNREACHABLE", fmt.Sprintf("%s: %v", strings.Join(s.opt.Brokers, ","), err)}
	}
	adm := kadm.NewClient(cl)
	meta, topics, err := s.topics(ctx, adm)
	if err != nil {
		return nil, err
	}
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, &readError{"list offsets", err}
	}
	ends, err := adm.ListCommittedOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, &readError{"list offsets", err}
	}
	highs, err := adm.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = highs.Error()
	}
	if err != nil {
		return nil, &readError{"list offsets", err}
	}
	firsts, err := s.firsts(ctx, adm, topics, starts, ends)
	if err != nil {
		return nil, err
	}
	known := positionsOf(from)
	parts := map[partKey]*partition{}
	for _, name := range topics {
		id := fmt.Sprintf("kafka:%s/%s@%s/", meta.Cluster, name, meta.Topics[name].ID)
		if err := s.checkTopic(name, id, known[name], meta.Topics[name]); err != nil {
			return nil, err
		}
		for _, num := range meta.Topics[name].Partitions.Numbers() {
			p := &partition{topic: name, num: num, source: fmt.Sprintf("%s%d", id, num)}
			start, end := offsetOf(starts, name, num), offsetOf(ends, name, num)
			p.end, p.high = end, max(end, offsetOf(highs, name, num))
			pos, ok := from[p.source]
			switch {
			case ok:
				p.next = pos.Offset
			case len(known[name]) > 0:
				p.next = start // a partition that is new: all of it
			default:
				p.next = offsetOf(firsts, name, num)
			}
			if err := s.checkRange(p, start, end); err != nil {
				return nil, err
			}
			s.pos[p.source] = event.Position{Source: p.source, Offset: p.next}
			parts[partKey{name, num}] = p
		}
	}
	return parts, nil
}

func offsetOf(l kadm.ListedOffsets, topic string, num int32) int64 {
	o, _ := l.Lookup(topic, num)
	return o.Offset
}

// topics are the named ones, which must be there, and those of the pattern.
func (s *Source) topics(ctx context.Context, adm *kadm.Client) (kadm.Metadata, []string, error) {
	var meta kadm.Metadata
	var err error
	if s.opt.Pattern != nil {
		meta, err = adm.Metadata(ctx)
	} else {
		meta, err = adm.Metadata(ctx, s.opt.Topics...)
	}
	if err != nil {
		return meta, nil, &readError{"list topics of " + strings.Join(s.opt.Brokers, ","), err}
	}
	names := map[string]bool{}
	for _, name := range s.opt.Topics {
		if t, ok := meta.Topics[name]; !ok || t.Err != nil {
			return meta, nil, &Error{"TOPIC_NOT_FOUND", fmt.Sprintf("topic %s: not found", name)}
		}
		names[name] = true
	}
	for name, t := range meta.Topics {
		if s.opt.Pattern != nil && s.opt.Pattern.MatchString(name) && !t.IsInternal && t.Err == nil {
			names[name] = true
		}
	}
	if len(names) == 0 {
		return meta, nil, &Error{"TOPIC_NOT_FOUND", "no topic matches " + s.opt.Pattern.String()}
	}
	return meta, slices.Sorted(maps.Keys(names)), nil
}

// firsts is where topics without positions begin.
func (s *Source) firsts(ctx context.Context, adm *kadm.Client, topics []string, starts, ends kadm.ListedOffsets) (kadm.ListedOffsets, error) {
	switch s.opt.Start {
	case "latest":
		return ends, nil
	case "time":
		at, err := adm.ListOffsetsAfterMilli(ctx, s.opt.StartAt.UnixMilli(), topics...)
		if err == nil {
			err = at.Error()
		}
		if err != nil {
			return nil, &readError{"list offsets by time", err}
		}
		return at, nil
	}
	return starts, nil
}

// positionsOf groups stored positions by topic name.
func positionsOf(from map[string]event.Position) map[string][]event.Position {
	out := map[string][]event.Position{}
	for id, p := range from {
		_, rest, ok := strings.Cut(id, "/")
		if name, _, found := strings.Cut(rest, "@"); ok && found && strings.HasPrefix(id, "kafka:") {
			out[name] = append(out[name], p)
		}
	}
	return out
}

// checkTopic compares stored positions with the topic that has the name now.
func (s *Source) checkTopic(name, id string, known []event.Position, t kadm.TopicDetail) error {
	for _, p := range known {
		num, ok := strings.CutPrefix(p.Source, id)
		why := ""
		if !ok {
			why = "the topic was made anew, or this is another cluster"
		} else if !slices.ContainsFunc(t.Partitions.Numbers(), func(n int32) bool { return fmt.Sprint(n) == num }) {
			why = "partition " + num + " is gone"
		}
		if why == "" {
			continue
		}
		if !s.opt.AllowLoss {
			return &Error{"SOURCE_CHANGED", fmt.Sprintf("topic %s: %s; reset the flow and raise option epoch, or set fail_on_data_loss=false", name, why)}
		}
		s.warn("topic %s: %s: reading goes on with what is there; raise option epoch, as offsets began anew", name, why)
	}
	return nil
}

// checkRange refuses positions that the partition no longer, or not yet, has.
func (s *Source) checkRange(p *partition, start, end int64) error {
	switch {
	case p.next < start:
		if !s.opt.AllowLoss {
			return &Error{"INPUT_GONE", fmt.Sprintf("topic %s partition %d: offsets %d to %d are no longer there; take a snapshot, or set fail_on_data_loss=false to go on without them", p.topic, p.num, p.next, start-1)}
		}
		s.warn("topic %s partition %d: offsets %d to %d are lost", p.topic, p.num, p.next, start-1)
		p.next = start
	case p.next > end:
		if !s.opt.AllowLoss {
			return &Error{"SOURCE_CHANGED", fmt.Sprintf("topic %s partition %d: read up to offset %d, but it ends at %d: it lost records; set fail_on_data_loss=false to go on", p.topic, p.num, p.next, end)}
		}
		s.warn("topic %s partition %d: read up to offset %d, but it ends at %d", p.topic, p.num, p.next, end)
		p.next = end
	}
	return nil
}

func (s *Source) warn(format string, args ...any) {
	if s.Warn != nil {
		s.Warn(format, args...)
	}
}
