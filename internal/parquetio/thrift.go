package parquetio

// Types of the thrift compact protocol.
const (
	tTrue   = 1
	tFalse  = 2
	tByte   = 3
	tI16    = 4
	tI32    = 5
	tI64    = 6
	tDouble = 7
	tBinary = 8
	tList   = 9
	tSet    = 10
	tMap    = 11
	tStruct = 12
)

const thriftMaxDepth = 32

// thriftReader pulls the thrift compact protocol out of a byte slice. It takes
// no memory by what the bytes claim: lists are handed out element by element.
// The first error sticks; all later calls return zero values.
type thriftReader struct {
	b     []byte
	pos   int
	depth int
	err   error
	short bool // the error is that b ended
}

func (r *thriftReader) fail(msg string) {
	if r.err == nil {
		r.err = corruptf("metadata at byte %d: %s", r.pos, msg)
	}
	r.pos = len(r.b)
}

func (r *thriftReader) end() {
	if r.err == nil {
		r.short = true
	}
	r.fail("ends too early")
}

func (r *thriftReader) byte() byte {
	if r.pos >= len(r.b) {
		r.end()
		return 0
	}
	r.pos++
	return r.b[r.pos-1]
}

func (r *thriftReader) uvarint() uint64 {
	var v uint64
	for shift := uint(0); shift < 64; shift += 7 {
		c := r.byte()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.fail("number too long")
	return 0
}

func (r *thriftReader) int() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *thriftReader) int32() int32 {
	v := r.int()
	if v != int64(int32(v)) {
		r.fail("number out of range")
		return 0
	}
	return int32(v)
}

// bytes returns a slice of the input.
func (r *thriftReader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)-r.pos) {
		r.end()
		return nil
	}
	v := r.b[r.pos : r.pos+int(n) : r.pos+int(n)]
	r.pos += int(n)
	return v
}

// fields calls fn for each field of a struct; fn must consume the value (booleans
// have their value in typ) or call skip.
func (r *thriftReader) fields(fn func(id int16, typ byte)) {
	if r.depth++; r.depth > thriftMaxDepth {
		r.fail("nested too deep")
	}
	id := int16(0)
	for r.err == nil {
		h := r.byte()
		if h == 0 {
			break
		}
		if d := int16(h >> 4); d != 0 {
			id += d
		} else {
			id = int16(r.int())
		}
		if r.err == nil {
			fn(id, h&0xf)
		}
	}
	r.depth--
}

// list calls fn for each element of a list of elements of type want; a list of
// another type is an error.
func (r *thriftReader) list(want byte, fn func()) {
	h := r.byte()
	n := uint64(h >> 4)
	if n == 15 {
		n = r.uvarint()
	}
	if n > uint64(len(r.b)-r.pos) { // an element takes a byte at least
		r.end()
		return
	}
	if h&0xf != want && n > 0 && (want != tTrue || h&0xf != tFalse) {
		r.fail("list of unexpected type")
		return
	}
	for ; n > 0 && r.err == nil; n-- {
		fn()
	}
}

func (r *thriftReader) skip(typ byte) {
	switch typ {
	case tTrue, tFalse:
	case tByte:
		r.byte()
	case tI16, tI32, tI64:
		r.uvarint()
	case tDouble:
		if r.pos += 8; r.pos > len(r.b) {
			r.end()
		}
	case tBinary:
		r.bytes()
	case tList, tSet:
		h := r.byte()
		n := uint64(h >> 4)
		if n == 15 {
			n = r.uvarint()
		}
		if n > uint64(len(r.b)-r.pos) {
			r.end()
			return
		}
		r.skipMany(h&0xf, n)
	case tMap:
		n := r.uvarint()
		if n == 0 {
			return
		}
		kv := r.byte()
		if n > uint64(len(r.b)-r.pos) {
			r.end()
			return
		}
		for ; n > 0 && r.err == nil; n-- {
			r.skipMany(kv>>4, 1)
			r.skipMany(kv&0xf, 1)
		}
	case tStruct:
		r.fields(func(_ int16, typ byte) { r.skip(typ) })
	default:
		r.fail("unknown type")
	}
}

// skipMany skips n list elements, in which booleans take a byte each.
func (r *thriftReader) skipMany(typ byte, n uint64) {
	if r.depth++; r.depth > thriftMaxDepth {
		r.fail("nested too deep")
	}
	for ; n > 0 && r.err == nil; n-- {
		if typ == tTrue || typ == tFalse {
			r.byte()
			continue
		}
		r.skip(typ)
	}
	r.depth--
}
