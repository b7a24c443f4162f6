package apply

import (
	"context"
	"errors"
)

// Run reads the source from where this flow's positions end until its present
// input ends, and applies what it reads. On an error Result says what was
// committed before it.
func Run(ctx context.Context, spec Spec, o Options) (Result, error) {
	return Result{Version: -1}, errors.ErrUnsupported
}
