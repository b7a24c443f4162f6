package source

import (
	"context"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"
)

// hiddenName says whether a file or folder is none of a snapshot's.
func hiddenName(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

// walk visits the files below the root, a folder or the URL of an object store: rel is the
// path below it, with slashes, path is what [Spec.From] takes.
func (p *patternSnapshots) walk(ctx context.Context, visit func(rel, path string)) error {
	if strings.Contains(p.root, "://") && p.spec.OpenStore != nil {
		return p.walkObjects(ctx, visit)
	}
	return filepath.WalkDir(p.root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != p.root && hiddenName(d.Name()) && d.IsDir():
			return fs.SkipDir
		case d.IsDir() || hiddenName(d.Name()):
			return nil
		}
		rel, err := filepath.Rel(p.root, path)
		if err == nil {
			visit(filepath.ToSlash(rel), path)
		}
		return err
	})
}

func (p *patternSnapshots) walkObjects(ctx context.Context, visit func(rel, path string)) error {
	store, err := p.spec.OpenStore(p.root)
	if err != nil {
		return err
	}
objects:
	for o, err := range store.List(ctx, "", "") {
		if err != nil {
			return err
		}
		parts := strings.Split(o.Key, "/")
		for i, part := range parts {
			if hiddenName(part) {
				continue objects
			}
			// Folders of a URL are percent-encoded, the name of its object is not.
			if i < len(parts)-1 {
				parts[i] = url.PathEscape(part)
			}
		}
		if o.Size > 0 {
			visit(o.Key, strings.TrimRight(p.root, "/")+"/"+strings.Join(parts, "/"))
		}
	}
	return nil
}
