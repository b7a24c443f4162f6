package changes

import (
	"errors"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// waitingRow is a message whose table schema has not come yet; it is part of the
// decoder's state, so that it outlives a restart.
type waitingRow struct {
	Table     string `json:"t"`
	Source    string `json:"s"`
	Topic     string `json:"o,omitempty"`
	Partition int32  `json:"p,omitempty"`
	Transport int64  `json:"n"`
	End       int64  `json:"e"`
	Line      int64  `json:"l"`
	Value     string `json:"v"`
}

// maxWaiting bounds the bytes of messages that wait for a schema: TiCDC sends it
// every two minutes or ten thousand messages.
const maxWaiting = 4 << 20

// hold keeps a row until the schema of its table comes.
func (f *ticdc) hold(d *Decoder, r *event.Record, table event.Table) error {
	size := len(r.Value)
	for _, w := range d.state.Waiting {
		size += len(w.Value)
	}
	if size > maxWaiting {
		return &ConfigError{"SCHEMA_NOT_SEEN", "the rows of table " + table.Name + " and others came before their schema and fill 4 MiB: let the changefeed send BOOTSTRAP messages (send-bootstrap-interval-in-sec), give --schema, or read types off the values with --option schema=infer"}
	}
	d.Warn("rows of table %s wait for its schema (BOOTSTRAP), which tells their types; --schema or --option schema=infer reads them at once", table.Name)
	d.state.Waiting = append(d.state.Waiting, waitingRow{Table: wire.TableKey(table), Source: r.Source, Topic: r.Topic, Partition: r.Partition,
		Transport: r.Transport, End: r.End, Line: r.Line, Value: string(r.Value)})
	return d.control(event.ControlSignal)
}

// release reads the rows that waited for the schema of a table. Each keeps its own
// place; one that cannot be read is poison alone.
func (f *ticdc) release(d *Decoder, key string) error {
	var rest []waitingRow
	waiting := d.state.Waiting
	d.state.Waiting = nil
	for _, w := range waiting {
		if w.Table != key {
			rest = append(rest, w)
			continue
		}
		r := &event.Record{Source: w.Source, Topic: w.Topic, Partition: w.Partition, Transport: w.Transport, End: w.End, Line: w.Line, Value: []byte(w.Value), Raw: []byte(w.Value)}
		top, err := object(r.Value, nil)
		if err == nil {
			err = f.read(d, r, top)
		}
		for i := range d.changes {
			if err != nil {
				break
			}
			err = d.put(r, &d.changes[i])
		}
		var p *wire.PoisonError
		if errors.As(err, &p) {
			d.quarantine(r, p)
			err = nil
		}
		if err != nil {
			return err
		}
		d.changes, d.isDelete, d.lastID = d.changes[:0], false, event.Table{}
	}
	d.state.Waiting = rest
	return nil
}
