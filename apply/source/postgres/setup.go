package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// server is what a reading found out about the other side.
type server struct {
	version  int // server_version_num
	system   string
	timeline int
	wal      int64 // the end of what is flushed
	standby  bool
	user     string
}

// slot is the replication slot as the server knows it.
type slot struct {
	exists    bool
	plugin    string
	database  string
	confirmed int64
	active    bool
	walStatus string
	retained  int64
}

// connect opens a connection for queries.
func (s *Source) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, s.opt.Conn.Copy())
	if err != nil {
		return nil, s.unreachable(err)
	}
	return conn, nil
}

// replication opens a connection that speaks the replication protocol.
func (s *Source) replication(ctx context.Context) (*pgconn.PgConn, error) {
	cfg := s.opt.Conn.Config.Copy()
	cfg.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, s.unreachable(err)
	}
	return conn, nil
}

// unreachable names a connection that could not be made. The driver's text holds no
// password, but it may hold the whole connection string: only its cause is kept.
func (s *Source) unreachable(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code[:2] {
		case "28":
			return &Error{"LOGIN_FAILED", fmt.Sprintf("%s: the server refused user %s: %s", s.place(), s.opt.Conn.User, pg.Message)}
		case "3D":
			return &Error{"SERVER_UNREACHABLE", fmt.Sprintf("%s: %s", s.place(), pg.Message)}
		}
		return fmt.Errorf("connect to %s: %w", s.place(), pg)
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	cause := err
	for next := errors.Unwrap(cause); next != nil; next = errors.Unwrap(cause) {
		cause = next
	}
	return &lostError{fmt.Errorf("connect to %s: %w", s.place(), cause)}
}

func (s *Source) place() string {
	return fmt.Sprintf("%s:%d/%s", s.opt.Conn.Host, s.opt.Conn.Port, s.opt.Conn.Database)
}

// look asks the server who and how it is.
func (s *Source) look(ctx context.Context, conn *pgx.Conn) (*server, *slot, error) {
	v := &server{}
	err := conn.QueryRow(ctx, `select current_setting('server_version_num')::int, pg_is_in_recovery(), current_user::text,
((case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end) - '0/0'::pg_lsn)::bigint`).
		Scan(&v.version, &v.standby, &v.user, &v.wal)
	if err != nil {
		return nil, nil, fmt.Errorf("look at server: %w", err)
	}
	if v.version < 130000 {
		return nil, nil, fail("UNSUPPORTED_VERSION", "%s runs PostgreSQL %d: 13 is the oldest that is read", s.place(), v.version/10000)
	}
	sl, err := s.slotOf(ctx, conn)
	return v, sl, err
}

// identify asks for what only the replication protocol tells.
func (s *Source) identify(ctx context.Context, v *server) error {
	rc, err := s.replication(ctx)
	if err != nil {
		return err
	}
	id, err := pglogrepl.IdentifySystem(ctx, rc)
	if err = errors.Join(err, rc.Close(ctx)); err != nil {
		return fmt.Errorf("identify server: %w", err)
	}
	v.system, v.timeline = id.SystemID, int(id.Timeline)
	return nil
}

func (s *Source) slotOf(ctx context.Context, conn *pgx.Conn) (*slot, error) {
	sl := &slot{exists: true}
	err := conn.QueryRow(ctx, `select coalesce(plugin, ''), coalesce(database, ''), coalesce(confirmed_flush_lsn - '0/0'::pg_lsn, 0)::bigint, active, coalesce(wal_status, ''),
coalesce(((case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end) - restart_lsn), 0)::bigint
from pg_replication_slots where slot_name = $1`, s.opt.Slot).Scan(&sl.plugin, &sl.database, &sl.confirmed, &sl.active, &sl.walStatus, &sl.retained)
	if errors.Is(err, pgx.ErrNoRows) {
		return &slot{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at slot: %w", err)
	}
	return sl, nil
}

// missing gathers what keeps the server from being read, with the SQL that helps.
type missing []string

func (m *missing) add(what, sql string) { *m = append(*m, what+": "+sql) }

func (m missing) err() error {
	if len(m) == 0 {
		return nil
	}
	return &Error{"SETUP_NEEDED", "the server is not ready; let an administrator see to it: " + strings.Join(m, "; ")}
}

// check says everything that is missing at once. What setUp can make itself is not.
func (s *Source) check(ctx context.Context, conn *pgx.Conn, v *server, sl *slot) (m missing, err error) {
	var level string
	var free int
	var may bool
	err = conn.QueryRow(ctx, `select current_setting('wal_level'), current_setting('max_replication_slots')::int - (select count(*) from pg_replication_slots)::int,
(select rolsuper or rolreplication from pg_roles where rolname = current_user) or exists (select from pg_roles where rolname = 'rds_replication' and pg_has_role(current_user, oid, 'MEMBER'))`).
		Scan(&level, &free, &may)
	if err != nil {
		return nil, fmt.Errorf("look at settings: %w", err)
	}
	if level != "logical" {
		m.add("wal_level is "+level, "ALTER SYSTEM SET wal_level = 'logical'; -- then restart the server")
	}
	if !may {
		m.add("role "+v.user+" may not replicate", "ALTER ROLE "+pgx.Identifier{v.user}.Sanitize()+" REPLICATION; -- on RDS: GRANT rds_replication TO it")
	}
	if !sl.exists && free < 1 {
		m.add("every replication slot is taken", "ALTER SYSTEM SET max_replication_slots = 20; -- then restart, or drop one: SELECT pg_drop_replication_slot('NAME')")
	}
	return m, nil
}

// publication makes the publication, or adds tables that are new to one that lists its
// tables and is ours to change; it returns the tables to read.
func (s *Source) publication(ctx context.Context, conn *pgx.Conn, v *server, m missing, change bool) ([]*row, error) {
	var exists, all, owned, root, ins, upd, del, trunc bool
	err := conn.QueryRow(ctx, `select true, puballtables, pg_get_userbyid(pubowner) = current_user or (select rolsuper from pg_roles where rolname = current_user), pubviaroot, pubinsert, pubupdate, pubdelete, pubtruncate
from pg_publication where pubname = $1`, s.opt.Publication).Scan(&exists, &all, &owned, &root, &ins, &upd, &del, &trunc)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("look at publication: %w", err)
	}
	if exists && !(ins && upd && del && trunc) {
		s.warn("publication %s leaves out some operations: the tables will differ from their sources; ALTER PUBLICATION %s SET (publish = 'insert, update, delete, truncate')", s.opt.Publication, pgx.Identifier{s.opt.Publication}.Sanitize())
	}
	var chosen []*row
	if exists {
		if chosen, err = s.published(ctx, conn); err != nil {
			return nil, err
		}
	}
	var added []*row
	if !exists || !all && owned && root {
		if added, err = s.unpublished(ctx, conn, chosen); err != nil {
			return nil, err
		}
	}
	var names []string
	for _, t := range added {
		if !exists && !t.owned {
			m.add("table "+t.String()+" belongs to another role, so "+v.user+" cannot publish it",
				"CREATE PUBLICATION "+pgx.Identifier{s.opt.Publication}.Sanitize()+" FOR TABLE "+t.sql()+" WITH (publish_via_partition_root = true)")
		}
		if t.owned {
			names = append(names, t.sql())
		}
	}
	chosen = append(chosen, slices.DeleteFunc(added, func(t *row) bool { return !t.owned })...)
	for _, t := range chosen {
		if !t.usable {
			m.add("schema "+t.Schema+" may not be used", "GRANT USAGE ON SCHEMA "+pgx.Identifier{t.Schema}.Sanitize()+" TO "+pgx.Identifier{v.user}.Sanitize())
		}
		if !t.readable {
			m.add("table "+t.String()+" may not be read", "GRANT SELECT ON "+t.sql()+" TO "+pgx.Identifier{v.user}.Sanitize())
		}
	}
	if len(names) > 0 && !exists {
		var may bool
		if err := conn.QueryRow(ctx, `select has_database_privilege(current_database(), 'CREATE')`).Scan(&may); err != nil {
			return nil, fmt.Errorf("look at rights: %w", err)
		}
		if !may {
			m.add("role "+v.user+" may not create a publication", "GRANT CREATE ON DATABASE "+pgx.Identifier{s.opt.Conn.Database}.Sanitize()+" TO "+pgx.Identifier{v.user}.Sanitize())
		}
		if v.standby {
			m.add("the server is a standby", "-- on its primary: CREATE PUBLICATION "+pgx.Identifier{s.opt.Publication}.Sanitize()+" FOR TABLE "+strings.Join(names, ", "))
		}
	}
	slices.Sort(m)
	if err := slices.Compact(m).err(); err != nil {
		return nil, err
	}
	if len(chosen) == 0 {
		return nil, fail("NO_TABLES", "%s has no table with a key that %q chooses and publication %s has", s.place(), strings.Join(s.opt.Tables, ","), s.opt.Publication)
	}
	if len(names) == 0 || !change || v.standby {
		return chosen, nil
	}
	sql := "ALTER PUBLICATION " + pgx.Identifier{s.opt.Publication}.Sanitize() + " ADD TABLE " + strings.Join(names, ", ")
	if !exists {
		sql = "CREATE PUBLICATION " + pgx.Identifier{s.opt.Publication}.Sanitize() + " FOR TABLE " + strings.Join(names, ", ") + " WITH (publish_via_partition_root = true)"
	}
	if _, err := conn.Exec(ctx, sql); err != nil {
		return nil, fmt.Errorf("publish tables: %w", err)
	}
	return chosen, nil
}

// unpublished are the tables that the patterns choose and the publication lacks. Those
// without a usable key are left out: in a publication their updates would fail.
func (s *Source) unpublished(ctx context.Context, conn *pgx.Conn, have []*row) ([]*row, error) {
	all, err := list(ctx, conn, "not c.relispartition")
	if err != nil {
		return nil, err
	}
	var out []*row
	for _, t := range all {
		switch {
		case !s.opt.wanted(t.Schema, t.Name), slices.ContainsFunc(have, func(h *row) bool { return h.oid == t.oid }):
		case t.keyless() || t.Identity == "n":
			s.warn("table %s is left out: it has no primary key or replica identity by which a row can be told (ALTER TABLE %s ADD PRIMARY KEY ..., or REPLICA IDENTITY USING INDEX ...)", t, t.sql())
		default:
			out = append(out, t)
		}
	}
	return out, nil
}

// snapshotOf makes a slot and holds its snapshot open: the permanent slot, or one that
// goes away with the connection. at is the snapshot's position.
func (s *Source) snapshotOf(ctx context.Context, permanent bool) (conn *pgconn.PgConn, name string, at int64, err error) {
	if conn, err = s.replication(ctx); err != nil {
		return nil, "", 0, err
	}
	slotName := s.opt.Slot
	if !permanent {
		slotName = fmt.Sprintf("%.40s_copy_%d", s.opt.Slot, conn.PID())
	}
	made, err := pglogrepl.CreateReplicationSlot(ctx, conn, slotName, "pgoutput",
		pglogrepl.CreateReplicationSlotOptions{Temporary: !permanent, SnapshotAction: "EXPORT_SNAPSHOT", Mode: pglogrepl.LogicalReplication})
	if err != nil {
		return nil, "", 0, errors.Join(fmt.Errorf("create replication slot %s: %w", slotName, err), conn.Close(ctx))
	}
	lsn, err := pglogrepl.ParseLSN(made.ConsistentPoint)
	if err != nil {
		return nil, "", 0, errors.Join(fmt.Errorf("create replication slot %s: %w", slotName, err), conn.Close(ctx))
	}
	return conn, made.SnapshotName, int64(lsn), nil
}
