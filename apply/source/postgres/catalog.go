package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// TableInfo is a table that is read, as the catalog describes it.
type TableInfo struct {
	Schema, Name string
	// Keys are the columns that identify a row.
	Keys []string
	// Identity is the replica identity: d, f, i or n.
	Identity string
	// Rows is the planner's estimate, Bytes the size on disk.
	Rows, Bytes int64
	// Generated are stored columns that the server computes and does not send.
	Generated []string

	oid         uint32
	partitioned bool
	filter      string // the publication's row filter, as SQL
	only        []string
	columns     []column
	types       []string // of the columns, as SQL
}

// String is SCHEMA.TABLE, as in messages.
func (t *TableInfo) String() string { return t.Schema + "." + t.Name }

func (t *TableInfo) sql() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// relation is the table as an R message would describe it to a reader of the snapshot.
func (t *TableInfo) relation() *relation {
	r := &relation{oid: t.oid, schema: t.Schema, name: t.Name, identity: t.Identity[0]}
	for _, c := range t.columns {
		c.key = slices.Contains(t.Keys, c.name)
		r.columns = append(r.columns, c)
	}
	return r
}

// candidates are the ordinary and partitioned tables of the database.
const candidates = `select c.oid, n.nspname, c.relname, c.relkind = 'p', c.relreplident::text, greatest(c.reltuples, 0)::bigint, pg_table_size(c.oid),
  pg_get_userbyid(c.relowner) = current_user or (select rolsuper from pg_roles where rolname = current_user),
  has_schema_privilege(n.oid, 'USAGE'), has_table_privilege(c.oid, 'SELECT')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and c.relpersistence = 'p' and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'`

// row is one of candidates with what the role may do to it.
type row struct {
	TableInfo
	owned, usable, readable bool
}

// list reads candidates that match a condition on c, n and $1, in order of their names.
func list(ctx context.Context, conn *pgx.Conn, condition string, args ...any) ([]*row, error) {
	rows, err := conn.Query(ctx, candidates+" and "+condition+" order by n.nspname, c.relname", args...)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (*row, error) {
		t := &row{}
		err := r.Scan(&t.oid, &t.Schema, &t.Name, &t.partitioned, &t.Identity, &t.Rows, &t.Bytes, &t.owned, &t.usable, &t.readable)
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	for _, t := range out {
		if err := t.describe(ctx, conn); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// describe reads columns and keys.
func (t *TableInfo) describe(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `select a.attname, a.atttypid, a.atttypmod, a.attgenerated <> '', format_type(a.atttypid, a.atttypmod)
from pg_attribute a where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped order by a.attnum`, t.oid)
	if err != nil {
		return fmt.Errorf("read columns of %s: %w", t, err)
	}
	t.columns, t.types, t.Generated = nil, nil, nil
	var c column
	var generated bool
	var typ string
	_, err = pgx.ForEachRow(rows, []any{&c.name, &c.oid, &c.mod, &generated, &typ}, func() error {
		if generated {
			t.Generated = append(t.Generated, c.name)
		} else {
			t.columns, t.types = append(t.columns, c), append(t.types, typ)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read columns of %s: %w", t, err)
	}
	which := "i.indisprimary"
	if t.Identity == "i" {
		which = "i.indisreplident"
	}
	t.Keys, err = names(ctx, conn, `select a.attname::text from pg_index i cross join unnest(i.indkey) with ordinality k(attnum, at)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
where i.indrelid = $1 and i.indisvalid and k.at <= i.indnkeyatts and `+which+` order by k.at`, t.oid)
	if err != nil {
		return fmt.Errorf("read keys of %s: %w", t, err)
	}
	return nil
}

func names(ctx context.Context, conn *pgx.Conn, sql string, args ...any) ([]string, error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// typesOf reads the definitions of types that are not built in, and of those that they
// are made of.
func typesOf(ctx context.Context, conn *pgx.Conn, oids []uint32) ([]typeDef, error) {
	var out []typeDef
	seen := map[uint32]bool{}
	for len(oids) > 0 {
		var ask []uint32
		for _, o := range oids {
			if !known(o) && !seen[o] {
				seen[o] = true
				ask = append(ask, o)
			}
		}
		if len(ask) == 0 {
			break
		}
		rows, err := conn.Query(ctx, `select t.oid, n.nspname, t.typname, t.typtype::text,
case when t.typcategory = 'A' and t.typlen = -1 and t.typdelim = ',' then t.typelem else 0::oid end, t.typbasetype, t.typtypmod
from pg_type t join pg_namespace n on n.oid = t.typnamespace where t.oid = any($1)`, ask)
		if err != nil {
			return nil, fmt.Errorf("read types: %w", err)
		}
		defs, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (d typeDef, err error) {
			err = r.Scan(&d.OID, &d.Schema, &d.Name, &d.Kind, &d.Elem, &d.Base, &d.Mod)
			return d, err
		})
		if err != nil {
			return nil, fmt.Errorf("read types: %w", err)
		}
		oids = oids[:0:0]
		for _, d := range defs {
			oids = append(oids, d.Elem, d.Base)
		}
		out = append(out, defs...)
	}
	return slices.DeleteFunc(out, func(d typeDef) bool { return d.OID == 0 }), nil
}

// published are the tables of the publication that the patterns choose.
func (s *Source) published(ctx context.Context, conn *pgx.Conn) ([]*row, error) {
	all, err := list(ctx, conn, `exists (select from pg_publication_tables p where p.pubname = $1 and p.schemaname = n.nspname and p.tablename = c.relname)`, s.opt.Publication)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, `select schemaname::text || '.' || tablename, to_jsonb(p)->>'rowfilter', array(select jsonb_array_elements_text(nullif(to_jsonb(p)->'attnames', 'null'::jsonb)))
from pg_publication_tables p where pubname = $1`, s.opt.Publication)
	if err != nil {
		return nil, fmt.Errorf("read publication: %w", err)
	}
	type limit struct {
		filter *string
		only   []string
	}
	limits := map[string]limit{}
	var name string
	var l limit
	if _, err = pgx.ForEachRow(rows, []any{&name, &l.filter, &l.only}, func() error { limits[name] = l; return nil }); err != nil {
		return nil, fmt.Errorf("read publication: %w", err)
	}
	out := all[:0]
	for _, t := range all {
		if !s.opt.wanted(t.Schema, t.Name) {
			continue
		}
		if l := limits[t.String()]; l.filter != nil {
			t.filter = *l.filter
		}
		t.only = limits[t.String()].only
		t.restrict()
		out = append(out, t)
	}
	return out, nil
}

// restrict keeps the columns that the publication sends.
func (t *TableInfo) restrict() {
	if len(t.only) == 0 {
		return
	}
	var columns []column
	var types []string
	for i, c := range t.columns {
		if slices.Contains(t.only, c.name) {
			columns, types = append(columns, c), append(types, t.types[i])
		}
	}
	t.columns, t.types = columns, types
}

// keyless tells whether a change of a row could not be told.
func (t *TableInfo) keyless() bool {
	for _, k := range t.Keys {
		if !slices.ContainsFunc(t.columns, func(c column) bool { return c.name == k }) {
			return true
		}
	}
	return len(t.Keys) == 0
}

// quote writes a text as an SQL literal.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
