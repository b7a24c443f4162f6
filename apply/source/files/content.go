package files

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sluice-data/sluice/storage"
)

// content is an opened file or object.
type content interface {
	io.Reader
	io.Seeker
	io.ReaderAt
	io.Closer
	// stat is what it is now, under its name: a file that was replaced or is gone
	// fails with a reason.
	stat(ctx context.Context) (stat, string)
}

// stat is what tells whether a file is the one that it was.
type stat struct {
	size  int64
	mtime time.Time
	// id is device and inode of a file, the ETag of an object.
	id string
}

func statOf(i os.FileInfo) stat { return stat{i.Size(), i.ModTime(), fileID(i)} }

// localFile is a file of this machine.
type localFile struct {
	*os.File
	path string
}

func (f *localFile) stat(context.Context) (stat, string) {
	now, err := os.Stat(f.path)
	if err != nil {
		return stat{}, "it is gone"
	}
	opened, err := f.Stat()
	if err != nil {
		return stat{}, "it cannot be looked at: " + err.Error()
	}
	if !os.SameFile(now, opened) {
		return stat{}, "another file took its name while it was read"
	}
	return statOf(now), ""
}

// object is one of a store. It is whole whenever it can be seen, and read in large
// pieces, since each is a request.
type object struct {
	*io.SectionReader
	r     storage.Reader
	store storage.Store
	key   string
}

// objectPiece is how much of an object one request fetches.
const objectPiece = 4 << 20

func openObject(ctx context.Context, in input) (*object, error) {
	r, err := in.store.Open(ctx, in.key)
	if err != nil {
		return nil, err
	}
	return &object{SectionReader: io.NewSectionReader(r, 0, r.Size()), r: r, store: in.store, key: in.key}, nil
}

// Close implements content.
func (o *object) Close() error { return o.r.Close() }

func (o *object) stat(ctx context.Context) (stat, string) {
	now, err := o.store.Head(ctx, o.key)
	if err != nil {
		return stat{}, "it is gone: " + err.Error()
	}
	return objectStat(now), ""
}

// objectStat takes the ETag without its quotes, which some stores leave out in lists.
func objectStat(o storage.Object) stat {
	return stat{o.Size, o.ModTime, strings.NewReplacer(";", "%3B", ":", "%3A").Replace(strings.Trim(o.ETag, `"`))}
}

// changed tells whether an object became another one. Its time says nothing where it
// has an ETag: lists cut it to seconds.
func (st stat) changed(now stat) bool {
	return now.size != st.size || now.id != st.id || st.id == "" && !now.mtime.Equal(st.mtime)
}

// stream is the bytes of a content from its present place on, in pieces.
func stream(c content) io.Reader {
	if o, ok := c.(*object); ok {
		return bufio.NewReaderSize(o, objectPiece)
	}
	return c
}
