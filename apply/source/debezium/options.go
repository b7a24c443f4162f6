package debezium

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// Options of a decoder; the zero value reads Debezium's own defaults.
type Options struct {
	// Flat reads rows of ExtractNewRecordState (F3) beside envelopes.
	Flat bool
	// Keys are the key columns of every table; nil: those of the record key.
	Keys []string
	// KeysOf, if set, gives a table key columns of its own, nil where it has none.
	KeysOf func(event.Table) []string
	// Schema gives types by column name where the record does not (cdc-formats
	// 2.1); columns that no record has are not invented.
	Schema *schema.Struct
	// Tables, if not empty, keeps only these ("table", "schema.table", ...).
	Tables []string
	// Zone is assumed for timestamp texts without offset; nil is UTC.
	Zone *time.Location
	// Settings are the format's options by name, see [Options.set].
	Settings map[string]string

	epoch            int32
	placeholder      string
	defaults         wire.Modes
	columns          map[string]wire.Modes
	fullBefore       bool
	truncateSnapshot bool
	tombstones       string // auto, control, delete
	sequence         string // auto, position, transport
	noSource         bool
	prefix           string
}

// withDefaults reads Settings; every problem is reported.
func (o Options) withDefaults() (*Options, error) {
	o.placeholder, o.tombstones, o.sequence, o.prefix = "__debezium_unavailable_value", "auto", "auto", "__"
	o.columns = map[string]wire.Modes{}
	o.defaults.Zone = o.Zone
	var problems []string
	// Column settings start from the stream's own, so these come first.
	for pass := range 2 {
		for name, value := range o.Settings {
			if strings.Contains(name, ".") != (pass == 1) && name != "unavailable.value.placeholder" && name != "add.fields.prefix" {
				continue
			}
			if err := o.set(name, value); err != nil {
				problems = append(problems, err.Error())
			}
		}
	}
	if o.tombstones == "delete" && o.sequence == "position" {
		problems = append(problems, "TOMBSTONES_HAVE_NO_POSITION: tombstones are the deletes of this stream and carry no position; use sequence=transport")
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("debezium options: %s", strings.Join(problems, "; "))
	}
	return &o, nil
}

// set reads one option:
//
//	epoch=N                          raise after the position space restarted
//	decimal=precise|string|double    how bare decimals are written; decimal.COLUMN for one
//	time=adaptive|adaptive_time_microseconds|connect|isostring|microseconds|nanoseconds|millis|micros|nanos
//	                                 unit of bare timestamps; time.COLUMN for one
//	binary=bytes|base64|base64-url-safe|hex   how bare bytes are written; binary.COLUMN for one
//	identity=full                    before images are whole (REPLICA IDENTITY FULL)
//	unavailable.value.placeholder=T  as in the connector; hex:.. for bytes
//	tombstones=auto|control|delete   what a null value of a flattened stream means
//	sequence=auto|position|transport
//	source=block|none                none: envelopes have no source block
//	snapshot=keep|truncate           truncate: where a snapshot of a table begins, its older rows go
//	add.fields.prefix=__             prefix of metadata in flattened rows
func (o *Options) set(name, value string) error {
	bad := func() error { return fmt.Errorf("%s=%s: not a value of this option", name, value) }
	base, column, _ := strings.Cut(name, ".")
	switch name {
	case "epoch":
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n < 0 {
			return bad()
		}
		o.epoch = int32(n)
		return nil
	case "identity":
		if value != "full" && value != "default" {
			return bad()
		}
		o.fullBefore = value == "full"
		return nil
	case "unavailable.value.placeholder":
		if h, ok := strings.CutPrefix(value, "hex:"); ok {
			b, err := hex.DecodeString(h)
			if err != nil {
				return bad()
			}
			value = string(b)
		}
		o.placeholder = value
		return nil
	case "tombstones":
		if value != "auto" && value != "control" && value != "delete" {
			return bad()
		}
		o.tombstones = value
		return nil
	case "sequence":
		if value != "auto" && value != "position" && value != "transport" {
			return bad()
		}
		o.sequence = value
		return nil
	case "source":
		if value != "block" && value != "none" {
			return bad()
		}
		o.noSource = value == "none"
		return nil
	case "snapshot":
		if value != "keep" && value != "truncate" {
			return bad()
		}
		o.truncateSnapshot = value == "truncate"
		return nil
	case "add.fields.prefix":
		if value == "" {
			return bad()
		}
		o.prefix = value
		return nil
	}
	m := o.defaults
	if column != "" {
		m = o.modes(column)
	}
	switch base {
	case "decimal":
		switch value {
		case "precise":
			m.Decimal = wire.DecimalBytes
		case "string", "double":
			m.Decimal = wire.DecimalText
		default:
			return bad()
		}
	case "time":
		switch value {
		case "adaptive", "adaptive_time_microseconds", "isostring", "microseconds", "micros":
			m.Unit = wire.Micros
		case "connect", "millis":
			m.Unit = wire.Millis
		case "nanoseconds", "nanos":
			m.Unit = wire.Nanos
		default:
			return bad()
		}
	case "binary":
		switch value {
		case "bytes", "base64", "base64-url-safe":
			m.Binary = wire.Base64
		case "hex":
			m.Binary = wire.Hex
		default:
			return bad()
		}
	default:
		return fmt.Errorf("%s: no such option", name)
	}
	if column == "" {
		o.defaults = m
	} else {
		o.columns[column] = m
	}
	return nil
}

// modes are the wire forms of a column that no schema tells.
func (o *Options) modes(column string) wire.Modes {
	if m, ok := o.columns[column]; ok {
		return m
	}
	return o.defaults
}
