package parquetio

import (
	"github.com/parquet-go/parquet-go/format"
)

// The parts of the footer that reading needs. Field numbers are those of
// parquet.thrift.

type logicalKind uint8

const (
	logicalNone logicalKind = iota
	logicalString
	logicalMap
	logicalList
	logicalEnum
	logicalDecimal
	logicalDate
	logicalTime
	logicalTimestamp
	logicalInt
	logicalNull
	logicalJSON
	logicalBSON
	logicalUUID
	logicalFloat16
	logicalVariant
	logicalInterval // converted type only
	logicalKeyValue // converted type only: MAP_KEY_VALUE
	logicalUnknown
)

// units of logicalTime and logicalTimestamp
const (
	unitMillis = 1
	unitMicros = 2
	unitNanos  = 3
)

type logicalType struct {
	kind             logicalKind
	scale, precision int32
	bits             int8
	signed           bool
	utc              bool
	utcKnown         bool // false when only a converted type was there
	unit             int8
}

type schemaElement struct {
	typ        format.Type
	hasType    bool
	typeLength int32
	repetition int8
	name       string
	children   int32
	converted  int32 // -1 none
	scale      int32
	precision  int32
	fieldID    int32
	hasFieldID bool
	logical    logicalType
}

type chunkStats struct {
	minValue, maxValue       []byte // nil when absent
	oldMin, oldMax           []byte
	hasMinValue, hasMaxValue bool
	hasOldMin, hasOldMax     bool
	nullCount                int64 // -1 when absent
}

type chunkMeta struct {
	typ           format.Type
	codec         format.CompressionCodec
	numValues     int64
	uncompressed  int64
	compressed    int64
	dataOffset    int64
	dictOffset    int64
	stats         chunkStats
	offsetIdx     int64
	offsetIdxLen  int32
	external      bool
	encrypted     bool
	hasMeta       bool
	bloomOffset   int64
	colIdx        int64
	colIdxLen     int32
	encodingKinds uint32
}

type rowGroupMeta struct {
	columns []chunkMeta
	numRows int64
	bytes   int64
}

type fileMeta struct {
	schema     []schemaElement
	numRows    int64
	rowGroups  []rowGroupMeta
	keyValue   map[string]string
	createdBy  string
	typeOrders []bool // per leaf: the type-defined order holds
	encrypted  bool
}

func parseFooter(b []byte) (*fileMeta, error) {
	r := &thriftReader{b: b}
	m := &fileMeta{keyValue: map[string]string{}}
	hasSchema := false
	r.fields(func(id int16, typ byte) {
		switch {
		case id == 2 && typ == tList:
			hasSchema = true
			r.list(tStruct, func() { m.schema = append(m.schema, r.schemaElement()) })
		case id == 3 && typ == tI64:
			m.numRows = r.int()
		case id == 4 && typ == tList:
			r.list(tStruct, func() { m.rowGroups = append(m.rowGroups, r.rowGroup()) })
		case id == 5 && typ == tList:
			r.list(tStruct, func() {
				k, v := r.keyValue()
				m.keyValue[k] = v
			})
		case id == 6 && typ == tBinary:
			m.createdBy = string(r.bytes())
		case id == 7 && typ == tList:
			r.list(tStruct, func() {
				order := false
				r.fields(func(id int16, typ byte) { order = order || id == 1; r.skip(typ) })
				m.typeOrders = append(m.typeOrders, order)
			})
		case id == 8:
			m.encrypted = true
			r.skip(typ)
		default:
			r.skip(typ)
		}
	})
	if r.err != nil {
		return nil, r.err
	}
	if !hasSchema || len(m.schema) == 0 {
		return nil, corruptf("footer has no schema")
	}
	return m, nil
}

func (r *thriftReader) keyValue() (k, v string) {
	has := false
	r.fields(func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tBinary:
			k, has = string(r.bytes()), true
		case id == 2 && typ == tBinary:
			v = string(r.bytes())
		default:
			r.skip(typ)
		}
	})
	if !has {
		r.fail("key-value pair without key")
	}
	return k, v
}

func (r *thriftReader) schemaElement() schemaElement {
	e := schemaElement{converted: -1}
	named := false
	r.fields(func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tI32:
			e.typ, e.hasType = format.Type(r.int32()), true
		case id == 2 && typ == tI32:
			e.typeLength = r.int32()
		case id == 3 && typ == tI32:
			e.repetition = int8(r.int32())
		case id == 4 && typ == tBinary:
			e.name, named = string(r.bytes()), true
		case id == 5 && typ == tI32:
			e.children = r.int32()
		case id == 6 && typ == tI32:
			e.converted = r.int32()
		case id == 7 && typ == tI32:
			e.scale = r.int32()
		case id == 8 && typ == tI32:
			e.precision = r.int32()
		case id == 9 && typ == tI32:
			e.fieldID, e.hasFieldID = r.int32(), true
		case id == 10 && typ == tStruct:
			e.logical = r.logicalType()
		default:
			r.skip(typ)
		}
	})
	if !named {
		r.fail("schema element without name")
	}
	if e.logical.kind == logicalNone {
		e.logical = convertedType(&e)
	}
	return e
}

var logicalByField = map[int16]logicalKind{
	1: logicalString, 2: logicalMap, 3: logicalList, 4: logicalEnum, 5: logicalDecimal, 6: logicalDate,
	7: logicalTime, 8: logicalTimestamp, 10: logicalInt, 11: logicalNull, 12: logicalJSON, 13: logicalBSON,
	14: logicalUUID, 15: logicalFloat16, 16: logicalVariant,
}

func (r *thriftReader) logicalType() logicalType {
	var t logicalType
	r.fields(func(id int16, typ byte) {
		kind, ok := logicalByField[id]
		if !ok || typ != tStruct {
			kind = logicalUnknown
			r.skip(typ)
		} else {
			r.fields(func(id int16, typ byte) {
				switch {
				case kind == logicalDecimal && id == 1 && typ == tI32:
					t.scale = r.int32()
				case kind == logicalDecimal && id == 2 && typ == tI32:
					t.precision = r.int32()
				case kind == logicalInt && id == 1 && typ == tByte:
					t.bits = int8(r.byte())
				case kind == logicalInt && id == 2:
					t.signed = typ == tTrue
					r.skip(typ)
				case (kind == logicalTimestamp || kind == logicalTime) && id == 1:
					t.utc, t.utcKnown = typ == tTrue, true
					r.skip(typ)
				case (kind == logicalTimestamp || kind == logicalTime) && id == 2 && typ == tStruct:
					r.fields(func(id int16, typ byte) { t.unit = int8(id); r.skip(typ) })
				default:
					r.skip(typ)
				}
			})
		}
		t.kind = kind
	})
	return t
}

// convertedType is the logical type that the older annotation of e stands for.
func convertedType(e *schemaElement) logicalType {
	switch e.converted {
	case 0:
		return logicalType{kind: logicalString}
	case 1:
		return logicalType{kind: logicalMap}
	case 2:
		return logicalType{kind: logicalKeyValue}
	case 3:
		return logicalType{kind: logicalList}
	case 4:
		return logicalType{kind: logicalEnum}
	case 5:
		return logicalType{kind: logicalDecimal, scale: e.scale, precision: e.precision}
	case 6:
		return logicalType{kind: logicalDate}
	case 7, 8:
		return logicalType{kind: logicalTime, utc: true, unit: int8(e.converted - 6)}
	case 9, 10:
		return logicalType{kind: logicalTimestamp, utc: true, unit: int8(e.converted - 8)}
	case 11, 12, 13, 14:
		return logicalType{kind: logicalInt, bits: 8 << (e.converted - 11)}
	case 15, 16, 17, 18:
		return logicalType{kind: logicalInt, bits: int8(8 << (e.converted - 15)), signed: true}
	case 19:
		return logicalType{kind: logicalJSON}
	case 20:
		return logicalType{kind: logicalBSON}
	case 21:
		return logicalType{kind: logicalInterval}
	}
	return logicalType{}
}

func (r *thriftReader) rowGroup() rowGroupMeta {
	var g rowGroupMeta
	hasColumns := false
	r.fields(func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tList:
			hasColumns = true
			r.list(tStruct, func() { g.columns = append(g.columns, r.columnChunk()) })
		case id == 2 && typ == tI64:
			g.bytes = r.int()
		case id == 3 && typ == tI64:
			g.numRows = r.int()
		default:
			r.skip(typ)
		}
	})
	if !hasColumns {
		r.fail("row group without columns")
	}
	return g
}

func (r *thriftReader) columnChunk() chunkMeta {
	c := chunkMeta{stats: chunkStats{nullCount: -1}}
	r.fields(func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tBinary:
			c.external = len(r.bytes()) > 0
		case id == 3 && typ == tStruct:
			c.hasMeta = true
			r.columnMeta(&c)
		case id == 4 && typ == tI64:
			c.offsetIdx = r.int()
		case id == 5 && typ == tI32:
			c.offsetIdxLen = r.int32()
		case id == 6 && typ == tI64:
			c.colIdx = r.int()
		case id == 7 && typ == tI32:
			c.colIdxLen = r.int32()
		case id == 8:
			c.encrypted = true
			r.skip(typ)
		default:
			r.skip(typ)
		}
	})
	if !c.hasMeta && !c.encrypted {
		r.fail("column chunk without metadata")
	}
	return c
}

func (r *thriftReader) columnMeta(c *chunkMeta) {
	r.fields(func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tI32:
			c.typ = format.Type(r.int32())
		case id == 2 && typ == tList:
			r.list(tI32, func() { c.encodingKinds |= 1 << (uint32(r.int32()) & 31) })
		case id == 4 && typ == tI32:
			c.codec = format.CompressionCodec(r.int32())
		case id == 5 && typ == tI64:
			c.numValues = r.int()
		case id == 6 && typ == tI64:
			c.uncompressed = r.int()
		case id == 7 && typ == tI64:
			c.compressed = r.int()
		case id == 9 && typ == tI64:
			c.dataOffset = r.int()
		case id == 11 && typ == tI64:
			c.dictOffset = r.int()
		case id == 12 && typ == tStruct:
			r.statistics(&c.stats)
		case id == 14 && typ == tI64:
			c.bloomOffset = r.int()
		default:
			r.skip(typ)
		}
	})
}

func (r *thriftReader) statistics(s *chunkStats) {
	r.fields(func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tBinary:
			s.oldMax, s.hasOldMax = r.bytes(), true
		case id == 2 && typ == tBinary:
			s.oldMin, s.hasOldMin = r.bytes(), true
		case id == 3 && typ == tI64:
			s.nullCount = r.int()
		case id == 5 && typ == tBinary:
			s.maxValue, s.hasMaxValue = r.bytes(), true
		case id == 6 && typ == tBinary:
			s.minValue, s.hasMinValue = r.bytes(), true
		default:
			r.skip(typ)
		}
	})
}

type pageHeader struct {
	typ          int32
	uncompressed int32
	compressed   int32
	crc          uint32
	hasCRC       bool
	hasData      bool // the sub-header that typ calls for was there
	numValues    int32
	encoding     format.Encoding
	defEncoding  format.Encoding
	repEncoding  format.Encoding
	numNulls     int32 // V2
	numRows      int32 // V2
	defLength    int32 // V2
	repLength    int32 // V2
	v2Compressed bool
}

func (r *thriftReader) pageHeader() pageHeader {
	h := pageHeader{typ: -1, v2Compressed: true}
	r.fields(func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tI32:
			h.typ = r.int32()
		case id == 2 && typ == tI32:
			h.uncompressed = r.int32()
		case id == 3 && typ == tI32:
			h.compressed = r.int32()
		case id == 4 && typ == tI32:
			h.crc, h.hasCRC = uint32(r.int32()), true
		case id == 5 && typ == tStruct:
			r.pageFields(&h, int32(format.DataPage), 1, 2, 3, 4)
		case id == 7 && typ == tStruct:
			r.pageFields(&h, int32(format.DictionaryPage), 1, 2, 0, 0)
		case id == 8 && typ == tStruct:
			r.dataPageV2(&h)
		default:
			r.skip(typ)
		}
	})
	return h
}

func (r *thriftReader) pageFields(h *pageHeader, kind int32, num, enc, def, rep int16) {
	h.hasData = h.hasData || h.typ == kind
	r.fields(func(id int16, typ byte) {
		switch {
		case typ != tI32:
			r.skip(typ)
		case id == num:
			h.numValues = r.int32()
		case id == enc:
			h.encoding = format.Encoding(r.int32())
		case id == def:
			h.defEncoding = format.Encoding(r.int32())
		case id == rep:
			h.repEncoding = format.Encoding(r.int32())
		default:
			r.skip(typ)
		}
	})
}

func (r *thriftReader) dataPageV2(h *pageHeader) {
	h.hasData = h.hasData || h.typ == int32(format.DataPageV2)
	r.fields(func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tI32:
			h.numValues = r.int32()
		case id == 2 && typ == tI32:
			h.numNulls = r.int32()
		case id == 3 && typ == tI32:
			h.numRows = r.int32()
		case id == 4 && typ == tI32:
			h.encoding = format.Encoding(r.int32())
		case id == 5 && typ == tI32:
			h.defLength = r.int32()
		case id == 6 && typ == tI32:
			h.repLength = r.int32()
		case id == 7:
			h.v2Compressed = typ == tTrue
			r.skip(typ)
		default:
			r.skip(typ)
		}
	})
}

type pageLocation struct {
	offset   int64
	size     int32
	firstRow int64
}

func parseOffsetIndex(b []byte) ([]pageLocation, error) {
	r := &thriftReader{b: b}
	var out []pageLocation
	r.fields(func(id int16, typ byte) {
		if id != 1 || typ != tList {
			r.skip(typ)
			return
		}
		r.list(tStruct, func() {
			var p pageLocation
			r.fields(func(id int16, typ byte) {
				switch {
				case id == 1 && typ == tI64:
					p.offset = r.int()
				case id == 2 && typ == tI32:
					p.size = r.int32()
				case id == 3 && typ == tI64:
					p.firstRow = r.int()
				default:
					r.skip(typ)
				}
			})
			out = append(out, p)
		})
	})
	return out, r.err
}

// columnIndex are the bounds of a chunk's pages.
type columnIndex struct {
	nullPages  []bool
	mins, maxs [][]byte
	nullCounts []int64
}

func parseColumnIndex(b []byte) (*columnIndex, error) {
	r := &thriftReader{b: b}
	x := &columnIndex{}
	r.fields(func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tList:
			r.list(tTrue, func() { x.nullPages = append(x.nullPages, r.byte() == tTrue) })
		case id == 2 && typ == tList:
			r.list(tBinary, func() { x.mins = append(x.mins, r.bytes()) })
		case id == 3 && typ == tList:
			r.list(tBinary, func() { x.maxs = append(x.maxs, r.bytes()) })
		case id == 5 && typ == tList:
			r.list(tI64, func() { x.nullCounts = append(x.nullCounts, r.int()) })
		default:
			r.skip(typ)
		}
	})
	return x, r.err
}
