package parquetio

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
)

// Files of Spark before 3.0 (dates and timestamps) and 3.1 (INT96), and of later
// versions in legacy mode, count days in the hybrid calendar that switched from
// Julian to Gregorian on 1582-10-15. Footer keys tell them apart
// (delta-protocol 5.1, "Rebase").

const (
	sparkVersionKey  = "org.apache.spark.version"
	sparkLegacyKey   = "org.apache.spark.legacyDateTime"
	sparkInt96Key    = "org.apache.spark.legacyINT96"
	sparkTimeZoneKey = "org.apache.spark.timeZone"

	gregorianStart = -141427 // day of 1582-10-15
)

type rebaseModes struct {
	datetime, int96 bool // the old calendar applies
	utc             bool // the writer's zone is known to be UTC
}

func rebaseModesOf(kv map[string]string) rebaseModes {
	var m rebaseModes
	version, spark := kv[sparkVersionKey]
	_, oldTime := kv[sparkLegacyKey]
	_, old96 := kv[sparkInt96Key]
	m.datetime = oldTime || spark && versionBefore(version, 3, 0)
	m.int96 = old96 || spark && versionBefore(version, 3, 1)
	switch strings.ToUpper(kv[sparkTimeZoneKey]) {
	case "UTC", "Z", "GMT", "ETC/UTC", "ETC/GMT", "+00:00", "UTC+00:00":
		m.utc = true
	}
	return m
}

func versionBefore(v string, major, minor int) bool {
	parts := strings.SplitN(v, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (a < major || a == major && b < minor)
}

// dates moves days of the old calendar to the same year, month and day of the
// Gregorian one.
func (m rebaseModes) dates() transform {
	if !m.datetime {
		return nil
	}
	return func(_ string, in []byte) ([]byte, error) {
		in = bytes.Clone(in)
		for i := 0; i < len(in); i += 4 {
			d := int64(int32(binary.LittleEndian.Uint32(in[i:])))
			if d < gregorianStart {
				binary.LittleEndian.PutUint32(in[i:], uint32(rebaseDay(d)))
			}
		}
		return in, nil
	}
}

// timestamps does the same for microseconds. It needs the zone in which the
// writer took days apart; where that is not UTC, old values are refused.
func (m rebaseModes) timestamps(old bool) transform {
	if !old {
		return nil
	}
	return func(_ string, in []byte) ([]byte, error) {
		in = bytes.Clone(in)
		for i := 0; i < len(in); i += 8 {
			t := int64(binary.LittleEndian.Uint64(in[i:]))
			day := floorDiv(t, microsPerDay)
			if day >= gregorianStart {
				continue
			}
			if !m.utc {
				return nil, unsupportedf("timestamp before 1582-10-15 in the old calendar and an unknown time zone (footer key %s)", sparkTimeZoneKey)
			}
			binary.LittleEndian.PutUint64(in[i:], uint64(rebaseDay(day)*microsPerDay+t-day*microsPerDay))
		}
		return in, nil
	}
}

// rebaseDay takes a day of the Julian calendar, counted from 1970-01-01
// Gregorian, to the Gregorian day of the same name.
func rebaseDay(day int64) int64 {
	// Civil date of the Julian calendar, years beginning in March.
	z := day + 719470 // days since 0000-03-01 Julian
	era := floorDiv(z, 1461)
	doe := z - era*1461
	yoe := min(doe/365, 3)
	year := era*4 + yoe
	doy := doe - yoe*365
	// Days of the same date in the Gregorian calendar.
	gera := floorDiv(year, 400)
	gy := year - gera*400
	return gera*146097 + gy*365 + gy/4 - gy/100 + doy - 719468
}
