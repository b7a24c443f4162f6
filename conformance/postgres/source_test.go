package postgres

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/internal/testenv"
)

// TestSetup_Rights: what is missing is said all at once, with the SQL; with that SQL a
// role that is no superuser does the rest.
func TestSetup_Rights(t *testing.T) {
	c := start(t, "-c wal_level=replica")
	c.exec("shop", "create role app login; create schema sales; create table sales.orders(id int primary key); create table sales.logs(a int); insert into sales.orders values (1), (2)")
	dir := t.TempDir()
	args := []string{"apply", "--from", c.dsn("app", "shop") + "?tables=sales.*", "--into", "lake/{table}", "--follow=false"}
	r := sluice(t, dir, nil, args...)
	refused(t, r, "SETUP_NEEDED")
	for _, want := range []string{`ALTER SYSTEM SET wal_level = 'logical'`, `ALTER ROLE "app" REPLICATION`, `CREATE PUBLICATION "sluice_shop" FOR TABLE "sales"."orders"`, `table sales.logs is left out`} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%q is not in %s", want, r.stderr)
		}
	}
	c.exec("shop", "alter system set wal_level = 'logical'")
	c.crash()
	c.args = strings.Replace(c.args, "-c wal_level=replica", "", 1)
	c.up()
	c.exec("shop", `alter role app replication; create publication sluice_shop for table sales.orders with (publish_via_partition_root = true)`)
	r = sluice(t, dir, nil, args...)
	refused(t, r, "SETUP_NEEDED")
	for _, want := range []string{`GRANT USAGE ON SCHEMA "sales" TO "app"`, `GRANT SELECT ON "sales"."orders" TO "app"`} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%q is not in %s", want, r.stderr)
		}
	}
	if len(c.rows("select * from pg_replication_slots")) > 0 {
		t.Error("a slot was made before everything was there")
	}
	c.exec("shop", "grant usage on schema sales to app; grant select on sales.orders to app")
	must(t, dir, args...)
	if got := must(t, dir, "cat", "lake/orders", "--count"); got != "{\"count\":2}\n" {
		t.Error(got)
	}
}

// TestSource_Changed: a slot that is gone, that something else moved, or that is in
// use, another server and a server that was put back: each is named, nothing is written.
func TestSource_Changed(t *testing.T) {
	c := start(t, "-c wal_level=logical")
	c.exec("shop", "create table t(id int primary key, v text); insert into t values (1, 'a')")
	dir := t.TempDir()
	args := []string{"apply", "--from", c.from("tables=public.t"), "--into", "lake/t", "--follow=false"}
	must(t, dir, args...)
	// A copy of the server as it is now, to put back later.
	saved := filepath.Join(c.dir, "saved")
	c.crash()
	if err := os.CopyFS(saved, os.DirFS(c.data())); err != nil {
		t.Fatal(err)
	}
	c.up()
	c.exec("shop", "insert into t select i, 'b' from generate_series(2, 5000) i; checkpoint")
	must(t, dir, args...)
	if got := must(t, dir, "cat", "lake/t", "--count"); got != "{\"count\":5000}\n" {
		t.Error(got)
	}
	c.exec("shop", "insert into t values (6000, 'moved over')")
	c.exec("shop", "select pg_replication_slot_advance('sluice_shop', pg_current_wal_lsn())")
	refused(t, sluice(t, dir, nil, args...), "INPUT_GONE")
	c.exec("shop", "select pg_drop_replication_slot('sluice_shop')")
	refused(t, sluice(t, dir, nil, args...), "SLOT_LOST")
	c.exec("shop", "select pg_create_logical_replication_slot('sluice_shop', 'test_decoding')")
	refused(t, sluice(t, dir, nil, args...), "SLOT_FOREIGN")

	other := start(t, "-c wal_level=logical")
	other.exec("shop", "create table t(id int primary key, v text)")
	elsewhere := append([]string{}, args...)
	elsewhere[2] = other.from("tables=public.t")
	refused(t, sluice(t, dir, nil, elsewhere...), "SOURCE_CHANGED")

	c.crash()
	if err := os.RemoveAll(c.data()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(saved, c.data()); err != nil {
		t.Fatal(err)
	}
	if err := c.own(); err != nil {
		t.Fatal(err)
	}
	c.up()
	refused(t, sluice(t, dir, nil, args...), "SOURCE_CHANGED")
	// Promoted: the same system on another timeline.
	c.crash()
	if err := os.WriteFile(filepath.Join(c.data(), "standby.signal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.up()
	if err := c.run("pg_ctl", "-D", c.data(), "-w", "promote"); err != nil {
		t.Fatal(err)
	}
	r := sluice(t, dir, nil, args...)
	refused(t, r, "SOURCE_CHANGED")
	if !strings.Contains(r.stderr, "timeline=2") {
		t.Error(r.stderr)
	}
	if got := must(t, dir, "cat", "lake/t", "--count"); got != "{\"count\":5000}\n" {
		t.Errorf("a refused run wrote: %s", got)
	}
}

// TestSecrets: the password comes from where it may come from, and is nowhere else:
// not in what is printed, logged or stored.
func TestSecrets(t *testing.T) {
	const canary = "Kanarienvogel7"
	c := start(t, "-c wal_level=logical")
	c.exec("shop", "create role app login superuser password '"+canary+"'; create table t(id int primary key); insert into t values (1)")
	if err := os.WriteFile(filepath.Join(c.data(), "pg_hba.conf"), []byte("host all app 127.0.0.1/32 scram-sha-256\nhost all admin 127.0.0.1/32 trust\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.own(); err != nil {
		t.Fatal(err)
	}
	c.exec("shop", "select pg_reload_conf()")
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	pass := filepath.Join(filepath.Dir(secret), "pgpass")
	for path, text := range map[string]string{secret: canary + "\n", pass: "127.0.0.1:*:shop:app:" + canary + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"apply", "--from", c.dsn("app", "shop"), "--into", "lake/t", "--follow=false", "--log-level", "debug"}
	withURL := append([]string{}, args...)
	withURL[2] = strings.Replace(withURL[2], "app@", "app:"+canary+"@", 1)
	for _, try := range []struct {
		code string
		env  []string
		args []string
	}{
		{"LOGIN_FAILED", []string{"PGPASSWORD=wrong" + canary}, args},
		{"SECRET_IN_URL", nil, withURL},
		{"", []string{"PGPASSWORD=" + canary}, args},
		{"", []string{"PGPASSFILE=" + pass}, args},
		{"", nil, append(args, "--option", "password_file="+secret)},
	} {
		r := sluice(t, dir, try.env, try.args...)
		if try.code != "" {
			refused(t, r, try.code)
		} else if r.code != 0 {
			t.Errorf("%v: exit %d %s", try.env, r.code, r.stderr)
		}
		if strings.Contains(r.stdout+r.stderr, canary) {
			t.Errorf("the password is printed: %s%s", r.stdout, r.stderr)
		}
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), canary) {
			t.Errorf("%s holds the password", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSnapshot_Resumed kills sluice while it copies and starts it again, under a
// workload, until the copy is done; new tables join later.
func TestSnapshot_Resumed(t *testing.T) {
	c := start(t, "-c wal_level=logical")
	c.exec("shop", workloadSchema)
	c.exec("shop", "create table large(id int primary key, a int, v text); insert into large select i, i, md5(i::text) from generate_series(1, 60000) i")
	dir := t.TempDir()
	args := []string{"apply", "--from", c.from("tables=main,pair,idx,part,cleared,large"), "--into", "lake/{table}", "--batch-interval", "50ms", "--batch-rows", "5000"}
	w := c.workload(11, 2)
	done := func() bool { // the last commit of the copy of the large table is there
		r := sluice(t, dir, nil, "cat", "lake/large", "--count")
		return r.stdout == "{\"count\":60000}\n"
	}
	for range 4 {
		f := follow(t, dir, args...)
		w.after(25)
		f.kill(t)
	}
	must(t, dir, append(args, "--follow=false")...)
	if !done() {
		t.Error("the large table is not complete")
	}
	c.exec("shop", "create table late(id int primary key, v text); insert into late select i, 'late' from generate_series(1, 10) i")
	must(t, dir, append([]string{"apply", "--from", c.from("tables=main,pair,idx,part,cleared,large,late")}, append(args[3:], "--follow=false")...)...)
	w.end()
	c.exec("shop", "update late set v = 'changed' where id = 3; update large set v = 'changed' where id % 1000 = 0")
	must(t, dir, append([]string{"apply", "--from", c.from("tables=main,pair,idx,part,cleared,large,late")}, append(args[3:], "--follow=false")...)...)
	tables(t, c, dir, "lake")
	for _, table := range []string{"large", "late"} {
		var got, want []string
		for line := range strings.Lines(must(t, dir, "cat", "lake/"+table)) {
			got = append(got, text(object(t, line)))
		}
		for _, line := range c.rows("select * from " + table) {
			want = append(want, text(object(t, line)))
		}
		same(t, table, got, want)
	}
	if left := c.rows("select slot_name from pg_replication_slots where temporary"); len(left) > 0 {
		t.Errorf("slots were left behind: %v", left)
	}
}

// TestTypes_F11 takes the tables of the corpus pg-types: a row says the same when it came
// by COPY and when it came in the stream, and its type is that of docs/postgres.md.
func TestTypes_F11(t *testing.T) {
	c := start(t, "-c wal_level=logical")
	script, err := os.ReadFile(filepath.Join(testenv.SharedDir(t, "corpora", "debezium", "pg-types"), "schema.sql"))
	if err != nil {
		t.Fatal(err)
	}
	c.exec("shop", "create schema ext; create extension hstore schema ext")
	c.exec("shop", string(script))
	c.exec("shop", `insert into types(id, not_null_def) values (1, 1);
insert into types values (2, -32768, -2147483648, -9223372036854775808, 4294967295, '-0', '1e300', -0.0001, 9999999999999999999999999999.9999999999, 99999, '12345678901234567890.123456789012345678901234567890', false, 'ab', ' ', 'NULL', 'pg_catalog', 'Cit', 'a.b.c',
 'ffffffff-ffff-ffff-ffff-ffffffffffff', '{"a": 1.10}', '{"b":[null]}', '<a b="c">t</a>', '\x00ff', '0044-03-15 BC', '24:00', '23:59:59.999', '23:59:59', '23:59:59.999999-12', '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999', '2038-01-19 03:14:08',
 '1969-12-31 23:59:59.999999+00', '2024-01-01 12:00:00.12+00', '1 year 2 mons -3 days 04:05:06.789', '10.1.2.3/8', '2001:db8::/32', '08:00:2b:01:02:03', '(-1.5,2.25)', b'1', b'10000000001', b'101', '[1,5]', '[1,5]', '(1.5,2.50]', '[2024-01-01,2024-01-02)', '[2024-01-01 00:00+00,)', '[2024-01-01,2024-01-31]',
 'quote''d', 7, '-0.01', 'a=>1, "b c"=>NULL, "q\"x"=>"\\"', 'a:1 fat:2,4', '{1,NULL,-2147483648}', '{9223372036854775807,NULL}', '{NULL,"NULL","","a,b","q\"x","{}"}', '{1.10,NULL,-99999999.99}', '{t,NULL,f}', '{2024-02-29,NULL,"0001-01-01 BC"}', '{"2024-02-29 01:02:03.456789",NULL}', '{00000000-0000-0000-0000-000000000000}', '{0.1,NaN,-Infinity,NULL}', '{ok,"with space"}', 75, 'dflt');
insert into types(id, c_date, c_ts, c_tstz, c_num_free, a_int, c_double) values (3, 'infinity', '-infinity', 'infinity', 'NaN', '{{1,2},{3,4}}', 'NaN');`)
	dir := t.TempDir()
	args := []string{"apply", "--from", c.from("tables=public.types"), "--into", "lake/types", "--follow=false"}
	must(t, dir, args...)
	byCopy := strings.Split(strings.TrimSpace(must(t, dir, "cat", "lake/types", "--order-by", "id")), "\n")
	c.exec("shop", "delete from types where id > 100; insert into types select id + 100, "+strings.TrimPrefix(columnsOf(c, "types"), "id, ")+" from types")
	must(t, dir, args...)
	all := strings.Split(strings.TrimSpace(must(t, dir, "cat", "lake/types", "--order-by", "id")), "\n")
	if len(byCopy) != 3 || len(all) != 6 {
		t.Fatalf("%d and %d rows", len(byCopy), len(all))
	}
	for i, line := range byCopy {
		was, is := object(t, line), object(t, all[i+3])
		delete(was, "id")
		delete(is, "id")
		if text(was) != text(is) {
			t.Errorf("by COPY:   %s\nin stream: %s", text(was), text(is))
		}
	}
	row := object(t, byCopy[1])
	for col, want := range map[string]string{
		"c_bigint": "-9223372036854775808", "c_oid": "4294967295", "c_num": "-0.0001", "c_num38": "9999999999999999999999999999.9999999999", "c_num_free": `"12345678901234567890.123456789012345678901234567890"`,
		"c_char": `"ab   "`, "c_citext": `"Cit"`, "c_json": `"{\"a\": 1.10}"`, "c_date": `"-0043-03-15"`, "c_time": `"24:00:00.000000"`, "c_interval": `"P1Y2M-3DT4H5M6.789S"`, "c_bit1": "true", "c_bit11": `"10000000001"`,
		"c_int4range": `"[1,6)"`, "c_enum": `"quote'd"`, "c_domain": "7", "c_hstore": `"{\"a\":\"1\",\"b c\":null,\"q\\\"x\":\"\\\\\"}"`, "a_text": `[null,"NULL","","a,b","q\"x","{}"]`, "a_mood": `["ok","with space"]`, "a_int": "[1,null,-2147483648]", "a_num": "[1.10,null,-99999999.99]",
	} {
		if got := text(map[string]any{"": row[col]}); got != `{"":`+want+`}` {
			t.Errorf("%s: %s, want %s", col, got, want)
		}
	}
	rescued, _ := object(t, byCopy[2])["_rescued_data"].(string)
	for _, want := range []string{`"c_date":"infinity"`, `"c_ts":"-infinity"`, `"c_tstz":"infinity"`, `"a_int":[[1,2],[3,4]]`} {
		if !strings.Contains(rescued, want) {
			t.Errorf("%s is not rescued: %s", want, rescued)
		}
	}
}

func columnsOf(c *cluster, table string) string {
	var out []string
	for _, line := range c.rows("select attname from pg_attribute where attrelid = '" + table + "'::regclass and attnum > 0 order by attnum") {
		out = append(out, object(c.t.(*testing.T), line)["attname"].(string))
	}
	return strings.Join(out, ", ")
}

// TestSource_Recopy: a table that is copied once more is its source again: defaults that
// no event told, and rows whose deletes nobody saw.
func TestSource_Recopy(t *testing.T) {
	c := start(t, "-c wal_level=logical")
	c.exec("shop", "create table t(id int primary key, v text); create table u(id int primary key, v text); insert into t select i, 'a' from generate_series(1, 30) i; insert into u select * from t")
	dir := t.TempDir()
	args := []string{"apply", "--from", c.from("tables=public.*"), "--into", "lake/{table}", "--follow=false"}
	must(t, dir, args...)
	c.exec("shop", "alter table t add column x int default 5; update t set v = 'b' where id < 4")
	must(t, dir, args...)
	c.exec("shop", "alter publication sluice_shop set (publish = 'insert, update')")
	c.exec("shop", "delete from t where id > 20")
	c.exec("shop", "alter publication sluice_shop set (publish = 'insert, update, delete, truncate')")
	must(t, dir, args...)
	if got := must(t, dir, "cat", "lake/t", "--count"); got != "{\"count\":30}\n" {
		t.Fatalf("the deletes were to be missed: %s", got)
	}
	must(t, dir, append(args, "--option", "recopy=t")...)
	c.exec("shop", "update t set v = 'c' where id = 7")
	must(t, dir, args...)
	for _, table := range []string{"t", "u"} {
		var got, want []string
		for line := range strings.Lines(must(t, dir, "cat", "lake/"+table)) {
			got = append(got, text(object(t, line)))
		}
		for _, line := range c.rows("select * from " + table) {
			want = append(want, text(object(t, line)))
		}
		same(t, table, got, want)
	}
}
