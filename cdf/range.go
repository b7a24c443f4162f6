package cdf

import (
	"context"
	"time"

	deltalog "github.com/sluice-data/sluice/log"
)

// Range is a part of the history of a table. Each end is a version or a time, both
// inclusive; the start is required.
type Range struct {
	FromVersion, ToVersion *int64
	FromTime, ToTime       *time.Time
	// OutOfRange makes a start after the newest version an empty feed, and an end
	// time after it the newest version, instead of errors.
	OutOfRange bool
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// resolve turns the range into versions; empty means that no version is in it.
func (r Range) resolve(ctx context.Context, latest *deltalog.Snapshot) (from, to int64, empty bool, err error) {
	switch {
	case r.FromVersion == nil && r.FromTime == nil:
		return 0, 0, false, rangeError(CodeNoStart, "a start version or a start time is needed")
	case r.FromVersion != nil && r.FromTime != nil:
		return 0, 0, false, rangeError(CodeMultipleBoundary, "the start is given both as a version and as a time")
	case r.ToVersion != nil && r.ToTime != nil:
		return 0, 0, false, rangeError(CodeMultipleBoundary, "the end is given both as a version and as a time")
	case r.FromVersion != nil && *r.FromVersion < 0, r.ToVersion != nil && *r.ToVersion < 0:
		return 0, 0, false, rangeError(CodeInvalidRange, "versions start at 0")
	case r.FromVersion != nil && r.ToVersion != nil && *r.ToVersion < *r.FromVersion:
		return 0, 0, false, rangeError(CodeInvalidRange, "the end version %d is before the start version %d", *r.ToVersion, *r.FromVersion)
	case r.FromTime != nil && r.ToTime != nil && r.ToTime.Before(*r.FromTime):
		return 0, 0, false, rangeError(CodeInvalidRange, "the end %s is before the start %s", stamp(*r.ToTime), stamp(*r.FromTime))
	}
	var times *deltalog.Timeline
	if r.FromTime != nil || r.ToTime != nil {
		if times, err = latest.Timeline(ctx); err != nil {
			return 0, 0, false, err
		}
	}
	if from, empty, err = r.start(ctx, latest.Version, times); err != nil || empty {
		return 0, 0, empty, err
	}
	if to, err = r.end(ctx, latest.Version, times); err != nil {
		return 0, 0, false, err
	}
	if to < from {
		if r.FromTime != nil && r.ToTime != nil {
			return 0, 0, true, nil // both between the same two commits
		}
		return 0, 0, false, rangeError(CodeInvalidRange, "the end is version %d, before the start, version %d", to, from)
	}
	return from, to, false, nil
}

func (r Range) start(ctx context.Context, latest int64, times *deltalog.Timeline) (from int64, empty bool, err error) {
	if r.FromVersion != nil {
		if from = *r.FromVersion; from > latest {
			if r.OutOfRange {
				return 0, true, nil
			}
			return 0, false, rangeError(CodeStartAfterLatest, "the start version %d is after the newest version %d", from, latest)
		}
		return from, false, nil
	}
	from, ok, err := times.AtOrAfter(ctx, *r.FromTime)
	if err != nil || ok {
		return from, false, err
	}
	if r.OutOfRange {
		return 0, true, nil
	}
	last, err := times.Time(ctx, latest)
	if err != nil {
		return 0, false, err
	}
	return 0, false, rangeError(CodeTimeAfterLatest, "the start %s is after the newest version %d of %s", stamp(*r.FromTime), latest, stamp(last))
}

func (r Range) end(ctx context.Context, latest int64, times *deltalog.Timeline) (int64, error) {
	switch {
	case r.ToVersion != nil:
		return min(*r.ToVersion, latest), nil
	case r.ToTime == nil:
		return latest, nil
	}
	to, ok, err := times.AtOrBefore(ctx, *r.ToTime)
	if err != nil {
		return 0, err
	}
	if !ok {
		first, err := times.Time(ctx, times.First())
		if err != nil {
			return 0, err
		}
		return 0, rangeError(CodeTimeBeforeFirst, "the end %s is before the oldest version %d of %s", stamp(*r.ToTime), times.First(), stamp(first))
	}
	if to == latest && !r.OutOfRange {
		last, err := times.Time(ctx, latest)
		if err != nil {
			return 0, err
		}
		if r.ToTime.After(last) {
			return 0, rangeError(CodeTimeAfterLatest, "the end %s is after the newest version %d of %s", stamp(*r.ToTime), latest, stamp(last))
		}
	}
	return to, nil
}
