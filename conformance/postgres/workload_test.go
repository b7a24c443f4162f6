package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// workloadTables are the tables and what their rows are compared by.
var workloadTables = []string{"main", "pair", "idx", "cleared", "part"}

const workloadSchema = `
create table main(id int primary key, v text, n numeric(10,2), big text, tags int[], ok boolean);
create table pair(a int, b text, v text, big text, primary key (a, b));
alter table pair replica identity full;
create table idx(code text not null, v int, unique (code));
alter table idx replica identity using index idx_code_key;
create table cleared(id int primary key, v text);
create table part(id int, region int, v text, primary key (id, region)) partition by list (region);
create table part_0 partition of part for values in (0);
create table part_1 partition of part for values in (1);
create table trail(at bigserial primary key, tab text, op text, old jsonb, new jsonb);
create function note() returns trigger language plpgsql as $$
begin
  insert into trail(tab, op, old, new) values (tg_argv[0], tg_op, case when tg_op in ('UPDATE', 'DELETE') then to_jsonb(old) end, case when tg_op in ('INSERT', 'UPDATE') then to_jsonb(new) end);
  return null;
end $$;
create function note_truncate() returns trigger language plpgsql as $$
begin
  insert into trail(tab, op) values (tg_argv[0], 'TRUNCATE');
  return null;
end $$;
do $$ declare t text; begin
  foreach t in array array['main', 'pair', 'idx', 'cleared', 'part'] loop
    execute format('create trigger note after insert or update or delete on %I for each row execute function note(%L)', t, t);
    execute format('create trigger note_truncate after truncate on %I for each statement execute function note_truncate(%L)', t, t);
  end loop;
end $$;
insert into main select i, 'seed ' || i, i, repeat(md5(i::text), 150), array[i, null], i % 2 = 0 from generate_series(1, 300) i;
insert into pair select i, 'k' || i, 'seed', repeat(md5(i::text), 150) from generate_series(1, 40) i;
insert into idx select 'c' || i, i from generate_series(1, 40) i;
insert into cleared select i, 'seed' from generate_series(1, 40) i;
insert into part select i, i % 2, 'seed' from generate_series(1, 40) i;
`

// workload runs sessions against the server until it is told to stop.
type workload struct {
	c         *cluster
	committed atomic.Int64
	stop      atomic.Bool
	wg        sync.WaitGroup
	errs      chan error
}

func (c *cluster) workload(seed uint64, sessions int) *workload {
	w := &workload{c: c, errs: make(chan error, sessions)}
	for i := range sessions {
		w.wg.Go(func() { w.errs <- w.session(rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	return w
}

// after waits until n more transactions are committed.
func (w *workload) after(n int64) {
	w.c.t.Helper()
	want := w.committed.Load() + n
	for w.committed.Load() < want {
		if w.c.t.Context().Err() != nil {
			w.c.t.Fatal("the workload stands still")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (w *workload) end() {
	w.c.t.Helper()
	w.stop.Store(true)
	w.wg.Wait()
	close(w.errs)
	for err := range w.errs {
		if err != nil {
			w.c.t.Fatal(err)
		}
	}
}

// session runs one transaction after the other and connects anew when the server went.
func (w *workload) session(rng *rand.Rand) error {
	ctx := context.Background()
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(ctx)
		}
	}()
	for !w.stop.Load() {
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = pgx.Connect(ctx, w.c.dsn("admin", "shop")); err != nil {
				conn = nil
				time.Sleep(20 * time.Millisecond) // the server is down just now
				continue
			}
		}
		err := w.transaction(ctx, conn, rng)
		var pg *pgconn.PgError
		switch {
		case err == nil:
			w.committed.Add(1)
		case errors.As(err, &pg) && (pg.Code == "23505" || pg.Code[:2] == "40" || pg.Code[:3] == "57P"): // a key is taken, a rollback for another session's sake, a shutdown
		case conn.IsClosed():
		default:
			return err
		}
	}
	return nil
}

// errUndo rolls a transaction back.
var errUndo = errors.New("undo")

func (w *workload) transaction(ctx context.Context, conn *pgx.Conn, rng *rand.Rand) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for range 1 + rng.IntN(6) {
			if rng.IntN(5) > 0 {
				if err := w.statement(ctx, tx, rng); err != nil {
					return err
				}
				continue
			}
			err := pgx.BeginFunc(ctx, tx, func(sub pgx.Tx) error { // a savepoint
				for range 1 + rng.IntN(3) {
					if err := w.statement(ctx, sub, rng); err != nil {
						return err
					}
				}
				if rng.IntN(2) == 0 {
					return errUndo
				}
				return nil
			})
			if err != nil && !errors.Is(err, errUndo) {
				return err
			}
		}
		if rng.IntN(8) == 0 {
			return errUndo
		}
		return nil
	})
	if errors.Is(err, errUndo) {
		return nil
	}
	return err
}

// statement does one thing. Random values are made here, so that one seed asks for the
// same things again.
func (w *workload) statement(ctx context.Context, tx pgx.Tx, rng *rand.Rand) error {
	id, other, text := rng.IntN(400)+1, rng.IntN(400)+1, fmt.Sprintf("t%d", rng.IntN(1_000_000))
	long := strings.Repeat(text, 600)
	var sql string
	var args []any
	switch rng.IntN(22) {
	case 0, 1, 2:
		sql, args = "insert into main values ($1, $2, $3, $4, $5, $6) on conflict (id) do update set v = excluded.v", []any{id, text, float64(other) / 4, long, []int{id, other}, other%2 == 0}
	case 3, 4, 5:
		sql, args = "update main set v = $2, n = $3 where id = $1", []any{id, text, float64(other)}
	case 6:
		sql, args = "update main set big = $2 where id = $1", []any{id, long}
	case 7:
		sql, args = "update main set id = $2 where id = $1", []any{id, other}
	case 8:
		sql, args = "delete from main where id = $1", []any{id}
	case 9:
		sql, args = "update main set v = null, tags = null, n = null where id = $1", []any{id}
	case 10:
		sql, args = "insert into pair values ($1, $2, $3, $4) on conflict do nothing", []any{id % 50, "k" + text[:2], text, long}
	case 11:
		sql, args = "update pair set v = $2 where a = $1", []any{id % 50, text}
	case 12:
		sql, args = "update pair set a = a + 1000 where a = $1 and b = (select min(b) from pair where a = $1)", []any{id % 50}
	case 13:
		sql, args = "delete from pair where a = $1", []any{id % 50}
	case 14:
		sql, args = "insert into idx values ($1, $2) on conflict (code) do update set v = excluded.v", []any{fmt.Sprint("c", id%60), other}
	case 15:
		sql, args = "update idx set code = $2 where code = $1", []any{fmt.Sprint("c", id%60), fmt.Sprint("d", other)}
	case 16:
		sql, args = "delete from idx where code = $1", []any{fmt.Sprint("c", id%60)}
	case 17:
		sql, args = "insert into cleared values ($1, $2) on conflict (id) do update set v = excluded.v", []any{id % 60, text}
	case 18:
		if rng.IntN(6) > 0 {
			sql, args = "delete from cleared where id = $1", []any{id % 60}
		} else {
			sql = "truncate cleared"
		}
	case 19:
		sql, args = "insert into part values ($1, $2, $3) on conflict (id, region) do update set v = excluded.v", []any{id % 60, id % 2, text}
	case 20:
		sql, args = "update part set region = 1 - region where id = $1", []any{id % 60} // moves to the other partition
	default:
		// More than logical_decoding_work_mem: the server streams it before it commits.
		sql, args = "update main set v = $1, big = case when id % 7 = 0 then $2 else big end where id between $3 and $3 + 60", []any{text, long, id}
	}
	_, err := tx.Exec(ctx, sql, args...)
	return err
}
