package source

import (
	"context"
	"iter"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/files"
)

// replay gives records that were read for a sample once more, then the rest of
// the same reading: standard input cannot be read twice.
type replay struct {
	*files.Source
	head []*event.Record
	next func() (*event.Record, error, bool)
	stop func()
}

func (p *replay) sample(ctx context.Context, n int) ([]*event.Record, error) {
	p.next, p.stop = iter.Pull2(p.Source.Records(ctx, nil))
	for len(p.head) < n {
		rec, err, ok := p.next()
		if !ok {
			break
		}
		if err != nil {
			return nil, err
		}
		p.head = append(p.head, files.Clone(rec))
	}
	return p.head, nil
}

// Records implements event.Source.
func (p *replay) Records(ctx context.Context, from map[string]event.Position) iter.Seq2[*event.Record, error] {
	return func(yield func(*event.Record, error) bool) {
		for len(p.head) > 0 {
			rec := p.head[0]
			p.head = p.head[1:]
			if pos, ok := from[rec.Source]; ok && (pos.Done || rec.End <= pos.Offset) {
				continue
			}
			if !yield(rec, nil) {
				return
			}
		}
		for p.next != nil {
			rec, err, ok := p.next()
			if !ok {
				p.next = nil
				break
			}
			if err == nil {
				err = ctx.Err()
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
		for rec, err := range p.Source.Records(ctx, from) {
			if !yield(rec, err) {
				return
			}
		}
	}
}

// Close implements event.Source.
func (p *replay) Close() error {
	if p.stop != nil {
		p.stop()
	}
	return p.Source.Close()
}
