package dynamolog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-data/sluice/storage"
)

// Entry is one commit as the DynamoDB table tells it.
type Entry struct {
	TablePath string // URL of the table without a slash at its end, not encoded
	FileName  string // 20 digits and .json
	TempPath  string // relative to the log's folder: .tmp/<FileName>.<uuid>
	Complete  bool
	Expires   int64 // epoch seconds; 0 for none
}

// Table is the DynamoDB table. All reads are consistent.
type Table interface {
	// Get finds an entry; nil for none.
	Get(ctx context.Context, tablePath, fileName string) (*Entry, error)
	// Latest is the entry with the greatest file name of a table; nil for none.
	Latest(ctx context.Context, tablePath string) (*Entry, error)
	// Add creates an entry, or fails with an error that is storage.ErrExists. Any
	// other error leaves open whether it did, unless it is storage.ErrPermission.
	Add(ctx context.Context, e Entry) error
	// Replace writes an entry.
	Replace(ctx context.Context, e Entry) error
}

// Options of [New]; the zero value is the default.
type Options struct {
	// Clock gives the time that entries expire after. Default time.Now.
	Clock func() time.Time
	// NewID names temporary files. Default uuid.NewString.
	NewID func() string
}

// New wraps the store of a table, or of a folder of tables. path is the store's
// URL as engines write it into the DynamoDB table: not percent-encoded.
func New(inner storage.Store, path string, table Table, o Options) storage.Store {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	return &store{Store: inner, path: strings.TrimRight(path, "/"), table: table, o: o}
}

// store passes all on but what concerns commit files.
type store struct {
	storage.Store
	path  string
	table Table
	o     Options
}

// expiry is how long an entry outlives its completion: until then a late writer
// of the same version meets the entry, later it meets the file.
const expiry = 24 * time.Hour

var commitKey = regexp.MustCompile(`^((?:.*/)?)_delta_log/(\d{20})\.json$`)

// commit is a commit file below the store.
type commit struct {
	dir     string // of the table: "" or ending in "/"
	version int64
	name    string
}

func parseCommit(key string) (commit, bool) {
	m := commitKey.FindStringSubmatch(key)
	if m == nil {
		return commit{}, false
	}
	v, err := strconv.ParseInt(m[2], 10, 64)
	return commit{m[1], v, m[2] + ".json"}, err == nil
}

func (s *store) tablePath(dir string) string {
	return strings.TrimRight(s.path+"/"+dir, "/")
}

func logKey(dir, name string) string { return dir + "_delta_log/" + name }

// exists looks for an object.
func (s *store) exists(ctx context.Context, key string) (bool, error) {
	_, err := s.Store.Head(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Create commits if the key is that of a commit file.
func (s *store) Create(ctx context.Context, key string, data []byte) error {
	c, ok := parseCommit(key)
	if !ok {
		return s.Store.Create(ctx, key, data)
	}
	fail := func(class, err error) error {
		return &storage.Error{Op: "create", Root: s.URL(), Key: key, Class: class, Err: err}
	}
	if there, err := s.exists(ctx, key); err != nil {
		return err
	} else if there {
		return fail(storage.ErrExists, nil)
	}
	if err := s.settleBefore(ctx, c); err != nil {
		return err
	}
	e := Entry{TablePath: s.tablePath(c.dir), FileName: c.name, TempPath: ".tmp/" + c.name + "." + s.o.NewID()}
	temp := logKey(c.dir, e.TempPath)
	if err := s.Store.Put(ctx, temp, data); err != nil {
		if errors.Is(err, storage.ErrAmbiguous) {
			err = fail(storage.ErrTransient, errors.New(err.Error())) // it is only a temporary file: nothing is open
		}
		return err
	}
	if err := s.table.Add(ctx, e); err != nil {
		mine, err := s.settle(ctx, c, e, err, fail)
		if !mine {
			return err
		}
	}
	// The version is ours; what fails from here on is made good by whoever comes next.
	err := s.Store.Create(ctx, key, data)
	if errors.Is(err, storage.ErrExists) {
		// Somebody completed it, or wrote past the DynamoDB table: a conditional write
		// that was there first. Only the bytes tell.
		if there, rerr := storage.ReadAll(ctx, s.Store, key); rerr == nil && !bytes.Equal(there, data) {
			_ = s.finish(ctx, e)
			return fail(storage.ErrExists, errors.New("it was written past the DynamoDB table"))
		}
		err = nil
	}
	if err == nil && s.finish(ctx, e) == nil {
		_ = s.Store.Delete(ctx, temp)
	}
	return nil
}

// finish says in the entry that its file is there.
func (s *store) finish(ctx context.Context, e Entry) error {
	e.Complete, e.Expires = true, s.o.Clock().Add(expiry).Unix()
	return s.table.Replace(ctx, e)
}

// settleBefore completes the commit before c, or refuses if there is none.
func (s *store) settleBefore(ctx context.Context, c commit) error {
	refuse := func(format string, args ...any) error {
		return &storage.Error{Op: "create", Root: s.URL(), Key: logKey(c.dir, c.name), Err: fmt.Errorf(format, args...)}
	}
	if c.version == 0 {
		e, err := s.table.Get(ctx, s.tablePath(c.dir), c.name)
		if err == nil && e != nil && e.Complete {
			err = refuse("the DynamoDB table still holds entries of an older table at %s: delete them, or wait until they expire", e.TablePath)
		}
		return err
	}
	before := fmt.Sprintf("%020d.json", c.version-1)
	e, err := s.table.Get(ctx, s.tablePath(c.dir), before)
	if err != nil {
		return err
	}
	if e != nil && !e.Complete {
		return s.repair(ctx, c.dir, *e)
	}
	there, err := s.exists(ctx, logKey(c.dir, before))
	if err == nil && !there {
		err = refuse("the commit before it is missing")
	}
	return err
}

// settle finds out who holds the entry that could not be added. A rival's is
// completed first, since whoever lost reads the winner's commit next.
func (s *store) settle(ctx context.Context, c commit, e Entry, cause error, fail func(class, err error) error) (mine bool, err error) {
	if errors.Is(cause, storage.ErrPermission) {
		return false, cause
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	held, err := s.table.Get(look, e.TablePath, e.FileName)
	switch {
	case err != nil || held == nil && !errors.Is(cause, storage.ErrExists):
		return false, fail(storage.ErrAmbiguous, errors.Join(cause, err))
	case held == nil: // it was there, and has been taken away by hand
		return false, fail(storage.ErrTransient, errors.New("the entry vanished"))
	case held.TempPath == e.TempPath:
		return true, nil
	}
	_ = s.Store.Delete(look, logKey(c.dir, e.TempPath))
	if !held.Complete {
		if err := s.repair(look, c.dir, *held); err != nil {
			return false, fail(storage.ErrTransient, fmt.Errorf("complete the winner's commit: %w", err))
		}
	}
	return false, fail(storage.ErrExists, nil)
}

// repair ends the commit of a writer that did not.
func (s *store) repair(ctx context.Context, dir string, e Entry) error {
	key := logKey(dir, e.FileName)
	for try := 0; ; try++ {
		there, err := s.exists(ctx, key)
		var data []byte
		if err == nil && !there {
			data, err = storage.ReadAll(ctx, s.Store, logKey(dir, e.TempPath))
		}
		if err == nil && !there {
			if err = s.Store.Create(ctx, key, data); errors.Is(err, storage.ErrExists) {
				err = nil
			}
		}
		if err == nil {
			return s.finish(ctx, e)
		}
		// The temporary file may have gone because its commit was completed meanwhile.
		if !errors.Is(err, storage.ErrNotFound) || try == 2 {
			return err
		}
	}
}

// latest completes the newest entry of a table.
func (s *store) latest(ctx context.Context, dir string) error {
	e, err := s.table.Latest(ctx, s.tablePath(dir))
	if err != nil || e == nil || e.Complete {
		return err
	}
	if err = s.repair(ctx, dir, *e); errors.Is(err, storage.ErrPermission) {
		return nil // a reader: the version is not visible to it yet
	}
	return err
}

// List completes the newest commit before it lists a log.
func (s *store) List(ctx context.Context, prefix, startAfter string) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		if dir, _, ok := strings.Cut(prefix, "_delta_log/"); ok && (dir == "" || strings.HasSuffix(dir, "/")) {
			if err := s.latest(ctx, dir); err != nil {
				yield(storage.Object{}, err)
				return
			}
		}
		for o, err := range s.Store.List(ctx, prefix, startAfter) {
			if !yield(o, err) {
				return
			}
		}
	}
}

// Open completes a commit whose file is not there yet.
func (s *store) Open(ctx context.Context, key string) (storage.Reader, error) {
	r, err := s.Store.Open(ctx, key)
	c, ok := parseCommit(key)
	if !ok || !errors.Is(err, storage.ErrNotFound) {
		return r, err
	}
	e, terr := s.table.Get(ctx, s.tablePath(c.dir), c.name)
	if terr != nil || e == nil || e.Complete || s.repair(ctx, c.dir, *e) != nil {
		return nil, err
	}
	return s.Store.Open(ctx, key)
}
