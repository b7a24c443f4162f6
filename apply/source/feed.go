package source

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/deltafeed"
)

// openFeed opens the change feed of a table that From names; nil if it names none.
func (s *Spec) openFeed(ctx context.Context) (*Opened, error) {
	asked := s.Format == DeltaFeed
	if s.OpenTable == nil || len(s.From) != 1 || s.From[0] == "-" || !asked && s.Format != Auto && s.Format != "" {
		if asked {
			return nil, &Error{Code: "BAD_OPTION", Reason: "format delta reads the change feed of one table, which --from names"}
		}
		return nil, nil
	}
	snap, err := s.OpenTable(ctx, s.From[0])
	if err != nil {
		return nil, fmt.Errorf("open source table: %w", err)
	}
	if snap == nil {
		if asked {
			return nil, &Error{Code: "NOT_A_TABLE", Reason: "there is no Delta table at " + s.From[0]}
		}
		return nil, nil
	}
	if len(s.Keys) == 0 && !s.look {
		return nil, &Error{Code: "KEYS_NEEDED", Reason: "a change feed does not say what identifies a row: name its key columns with --keys"}
	}
	o := deltafeed.Options{Appends: !snap.Props.ChangeDataFeed}
	d := deltafeed.DecoderOptions{Keys: s.Keys, Table: event.Table{Name: path.Base(strings.TrimRight(s.From[0], "/"))}}
	for name, value := range s.Options {
		n, err := strconv.ParseInt(value, 10, 64)
		bad := err != nil || n < 0
		on, notBool := strconv.ParseBool(value)
		switch name {
		case "appends":
			o.Appends, bad = on, notBool != nil
		case "skip_change_commits":
			o.SkipChanges, bad = on, notBool != nil
		case "from_version":
			o.From = &n
		case "max_files":
			o.MaxFiles = int(n)
		case "epoch":
			d.Epoch, bad = int32(n), bad || n > 1<<31-1
		default:
			bad = true
		}
		if bad {
			return nil, &Error{Code: "BAD_OPTION", Reason: fmt.Sprintf("delta options: %s=%s: no such option or value", name, value)}
		}
	}
	o.Appends = o.Appends || o.SkipChanges // of a feed nothing is passed over
	d.Appends = o.Appends
	explain := "it is a Delta table, whose change feed is read"
	if o.Appends {
		explain = "it is a Delta table, whose appended rows are read"
	}
	return &Opened{
		Source: deltafeed.New(snap.Log(), snap, o), Format: DeltaFeed, Explain: explain,
		NewDecoder: func() event.Decoder { return deltafeed.NewDecoder(d) },
	}, nil
}
