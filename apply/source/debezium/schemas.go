package debezium

import (
	"bytes"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// schemaCache keeps parsed embedded schemas by their text: they repeat in every
// record and are many times larger than the row.
type schemaCache struct {
	plans map[string]*cachedSchema
	last  []byte // text of the newest one
	lastP *cachedSchema
}

type cachedSchema struct {
	connect           *connectSchema
	envelope, flat    *rowPlan
	envErr, flatErr   error
	haveEnv, haveFlat bool
}

// maxSchemas bounds the cache; past it the cache starts anew.
const maxSchemas = 4096

func (c *schemaCache) get(raw []byte) (*cachedSchema, error) {
	if c.lastP != nil && bytes.Equal(raw, c.last) {
		return c.lastP, nil
	}
	p, ok := c.plans[string(raw)]
	if !ok {
		s, err := parseConnect(raw)
		if err != nil {
			return nil, err
		}
		if len(c.plans) >= maxSchemas {
			clear(c.plans)
		}
		p = &cachedSchema{connect: s}
		c.plans[string(raw)] = p
	}
	c.last, c.lastP = append(c.last[:0], raw...), p
	return p, nil
}

// rowPlan is the plan of the schema's row, made once.
func (c *cachedSchema) rowPlan(o *Options, flat bool) (*rowPlan, error) {
	if flat {
		if !c.haveFlat {
			c.haveFlat = true
			if s := c.connect.row(true); s != nil {
				c.flat, c.flatErr = o.plan(s, o.isMeta)
			}
		}
		return c.flat, c.flatErr
	}
	if !c.haveEnv {
		c.haveEnv = true
		if s := c.connect.row(false); s != nil {
			c.envelope, c.envErr = o.plan(s, nil)
		}
	}
	return c.envelope, c.envErr
}

// schemaOf sets the table's columns to those of the record's schema. Records
// without one go on with what the table has.
func (d *Decoder) schemaOf(t *table, connect *cachedSchema, flat bool) error {
	if connect == nil {
		return nil
	}
	p, err := connect.rowPlan(d.opt, flat)
	if err != nil {
		return wire.Poison(event.PoisonEnvelope, "BAD_SCHEMA", "%s", err.Error())
	}
	if p == nil || p == t.plan {
		return nil
	}
	if t.plan == nil || !t.plan.equal(p) {
		if err := t.SetColumns(p.names, p.nodes); err != nil {
			return err
		}
	}
	t.plan = p
	for _, c := range p.defaults {
		d.Warn("table %s: column %s has a default in the source: under replace.null.with.default (the converter's default) an explicit NULL arrives as that default", t.ID.Name, c)
	}
	return nil
}

// equal compares the columns that two schemas give.
func (p *rowPlan) equal(q *rowPlan) bool {
	if len(p.names) != len(q.names) {
		return false
	}
	for i, name := range p.names {
		if name != q.names[i] || !p.nodes[i].Equal(q.nodes[i]) {
			return false
		}
	}
	return true
}
