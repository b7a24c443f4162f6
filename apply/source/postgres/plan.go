package postgres

import "context"

// Plan is what a reading would do, for a dry run.
type Plan struct {
	Server, Slot, Publication string
	// MakesSlot and MakesPublication: they are not there yet.
	MakesSlot, MakesPublication bool
	Tables                      []*TableInfo
}

// Plan looks at server, rights and tables and changes nothing. What is missing is an
// error, as it is for a reading.
func (s *Source) Plan(ctx context.Context) (*Plan, error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, s.named(err)
	}
	s.conn = conn
	defer s.hangUp()
	v, sl, err := s.look(ctx, conn)
	if err != nil {
		return nil, s.named(err)
	}
	m, err := s.check(ctx, conn, v, sl)
	if err != nil {
		return nil, s.named(err)
	}
	tables, err := s.publication(ctx, conn, v, m, false)
	if err != nil {
		return nil, s.named(err)
	}
	p := &Plan{Server: s.place(), Slot: s.opt.Slot, Publication: s.opt.Publication, MakesSlot: !sl.exists}
	var exists bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_publication where pubname = $1)", s.opt.Publication).Scan(&exists); err != nil {
		return nil, s.named(err)
	}
	p.MakesPublication = !exists
	for _, t := range tables {
		p.Tables = append(p.Tables, &t.TableInfo)
	}
	return p, nil
}
