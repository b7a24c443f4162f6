package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// binary is the command as users run it.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sluice-postgres-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "sluice")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/sluice")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the command:", err)
		return 1
	}
	return m.Run()
}

// cluster is a PostgreSQL server of a test.
type cluster struct {
	t    testing.TB
	bin  string
	dir  string
	port int
	args string
}

// programs finds the server's programs: PGBIN, Debian's folder, or the path.
func programs(t testing.TB) string {
	if testing.Short() {
		t.Skip("no server is started under -short")
	}
	dirs := []string{os.Getenv("PGBIN")}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	dirs = append(dirs, found...)
	if p, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(p))
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); dir != "" && err == nil {
			return dir
		}
	}
	missing := "PostgreSQL is missing; install it with: apt-get install postgresql-15 (or set PGBIN)"
	if os.Getenv("SLUICE_REQUIRE_ENGINES") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// start makes a cluster with settings ("-c name=value ...") and one database, shop.
func start(t testing.TB, settings string) *cluster {
	t.Helper()
	c := &cluster{t: t, bin: programs(t)}
	var err error
	if c.dir, err = os.MkdirTemp("", "sluice-pg-"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if out, err := exec.Command("chown", "postgres", c.dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Cleanup(func() {
		_ = c.run("pg_ctl", "-D", c.data(), "-m", "immediate", "-w", "stop")
		if err := os.RemoveAll(c.dir); err != nil {
			t.Error(err)
		}
	})
	if err := c.run("initdb", "-D", c.data(), "-U", "admin", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c.args = fmt.Sprintf("-p %d -h 127.0.0.1 -k %s -c fsync=off %s", c.port, c.dir, settings)
	c.up()
	c.exec("postgres", "create database shop")
	return c
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

// run runs one of the server's programs as a user who is not root. Its output goes to a
// file: the server inherits it.
func (c *cluster) run(program string, args ...string) error {
	cmd := exec.Command(filepath.Join(c.bin, program), args...)
	if os.Geteuid() == 0 {
		cmd = exec.Command("runuser", append([]string{"-u", "postgres", "--", filepath.Join(c.bin, program)}, args...)...)
	}
	out, err := os.CreateTemp("", "sluice-pg-out-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%s: %w\n%s", program, err, text)
	}
	return nil
}

func (c *cluster) up() {
	c.t.Helper()
	if err := c.run("pg_ctl", "-D", c.data(), "-l", filepath.Join(c.dir, "log"), "-w", "-t", "60", "-o", c.args, "start"); err != nil {
		text, _ := os.ReadFile(filepath.Join(c.dir, "log"))
		c.t.Fatalf("%v\n%s", err, text)
	}
}

// crash stops the server as a power cut would; up starts it again.
func (c *cluster) crash() {
	c.t.Helper()
	if err := c.run("pg_ctl", "-D", c.data(), "-m", "immediate", "-w", "stop"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) dsn(user, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s", user, c.port, database)
}

// from is the source's URL.
func (c *cluster) from(query string) string { return c.dsn("admin", "shop") + "?" + query }

func (c *cluster) conn(database string) *pgx.Conn {
	c.t.Helper()
	conn, err := pgx.Connect(context.Background(), c.dsn("admin", database))
	if err != nil {
		c.t.Fatal(err)
	}
	return conn
}

func (c *cluster) exec(database, sql string) {
	c.t.Helper()
	conn := c.conn(database)
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

// rows are the rows of a query as JSON objects.
func (c *cluster) rows(query string) []string {
	c.t.Helper()
	conn := c.conn("shop")
	defer conn.Close(context.Background())
	rows, err := conn.Query(context.Background(), "select row_to_json(q)::text from ("+query+") q")
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// ran is what a run of the command left.
type ran struct {
	code           int
	stdout, stderr string
}

// sluice runs the command in dir.
func sluice(t testing.TB, dir string, env []string, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run sluice %s: %v", strings.Join(args, " "), err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func must(t testing.TB, dir string, args ...string) string {
	t.Helper()
	r := sluice(t, dir, nil, args...)
	if r.code != 0 {
		t.Fatalf("sluice %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

func refused(t testing.TB, r ran, code string) {
	t.Helper()
	last := r.stderr[strings.LastIndexByte(strings.TrimRight(r.stderr, "\n"), '\n')+1:]
	if r.code == 0 || !strings.HasPrefix(last, "sluice: "+code+": ") {
		t.Errorf("want %s: exit %d\n%s%s", code, r.code, r.stdout, r.stderr)
	}
}

// own gives what the test wrote into the cluster's folder to the user it runs as.
func (c *cluster) own() error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := exec.Command("chown", "-R", "postgres", c.dir).Run(); err != nil {
		return err
	}
	return exec.Command("chmod", "-R", "go=", c.data()).Run()
}
