package apply

import (
	"context"
	"errors"

	"github.com/sluice-data/sluice/apply/event"
)

// gather takes over what the decoder has, as a part of the batch that is being read.
func (r *run) gather(ctx context.Context) error {
	decoded, err := r.dec.Flush()
	if err != nil {
		return err
	}
	for _, w := range decoded.Warnings {
		r.warn(w)
	}
	if err := r.route(ctx, decoded); err != nil {
		return err
	}
	if r.budget.total == 0 || r.cost <= r.budget.lot() {
		return nil
	}
	for _, in := range r.inputs {
		if err := in.spill(r.budget); err != nil {
			return err
		}
	}
	r.cost = 0
	return nil
}

// spill moves the events that an input holds to its spool.
func (in *input) spill(b *budget) (err error) {
	if len(in.batches) == 0 {
		return nil
	}
	if in.spool == nil {
		if in.spool, err = newSpool(b.spill()); err != nil {
			return err
		}
	}
	for _, e := range in.batches {
		if err := in.spool.add(e); err != nil {
			return err
		}
	}
	in.batches = nil
	return nil
}

// drop ends the batch.
func (r *run) drop() error {
	var errs []error
	for _, in := range r.inputs {
		errs = append(errs, in.spool.close())
	}
	clear(r.inputs)
	r.cost = 0
	return errors.Join(errs...)
}

// route adds batches and poison to the inputs of their targets.
func (r *run) route(ctx context.Context, d *event.Decoded) error {
	at := func(t *target) *input {
		if r.inputs[t] == nil {
			r.inputs[t] = &input{}
		}
		return r.inputs[t]
	}
	for _, b := range d.Batches {
		t, err := r.targetOf(b.Table)
		if err != nil {
			return err
		}
		if t == nil {
			continue
		}
		in, c := at(t), cost(b)
		in.cost, in.raw, r.cost = in.cost+c, in.raw+b.RawSize, r.cost+c
		in.batches = append(in.batches, b)
		if in.spool != nil {
			if err := in.spill(r.budget); err != nil {
				return err
			}
			r.cost -= c
		}
	}
	for _, p := range d.Poison {
		t, err := r.targetOfPoison(ctx, p)
		if err != nil {
			return err
		}
		if t != nil {
			in := at(t)
			in.poison = append(in.poison, p)
		}
	}
	return nil
}
