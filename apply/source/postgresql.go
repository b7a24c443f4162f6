package source

import (
	"maps"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/postgres"
)

// Postgres is a PostgreSQL server that From names.
const Postgres Format = "postgres"

// followRound bounds one reading of a server that is followed.
const followRound = time.Minute

// openPostgres opens the server that From names; nil if it names none.
func (s *Spec) openPostgres() (*Opened, error) {
	if len(s.From) == 0 || !postgres.IsURL(s.From[0]) {
		if s.Format == Postgres {
			return nil, &Error{Code: "BAD_OPTION", Reason: "format postgres reads a server: --from 'postgres://user@host/database?tables=public.*'"}
		}
		return nil, nil
	}
	if len(s.From) > 1 {
		return nil, &Error{Code: "BAD_OPTION", Reason: "a server is the only source of its flow"}
	}
	if s.Format != Postgres && s.Format != Auto && s.Format != "" {
		return nil, &Error{Code: "BAD_OPTION", Reason: "a server is read in its own format, not as " + string(s.Format)}
	}
	settings := maps.Clone(s.Options)
	if settings == nil {
		settings = map[string]string{}
	}
	o, err := postgres.ParseURL(s.From[0], settings)
	if err != nil {
		return nil, err
	}
	if s.Now != nil {
		o.Now = s.Now
	}
	o.SnapshotOnly = s.Once
	if s.Follow {
		o.Round = followRound
	}
	src := postgres.New(o)
	src.Warn = s.Warn
	return &Opened{
		Source: src, Format: Postgres, Explain: "it is a PostgreSQL server, whose tables are copied and followed",
		NewDecoder: func() event.Decoder {
			return src.NewDecoder(postgres.DecoderOptions{Keys: s.Keys, KeysOf: s.KeysOf, Schema: s.Schema, Tables: s.Tables, Zone: s.TimeZone})
		},
	}, nil
}
