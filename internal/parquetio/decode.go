package parquetio

import (
	"encoding/binary"
)

// decodeRLE decodes len(dst) values of the run-length and bit-packing hybrid.
// Runs that go beyond len(dst) are cut, input that ends too early is an error.
func decodeRLE[T uint8 | uint32](dst []T, src []byte, width uint) error {
	if width == 0 {
		clear(dst)
		return nil
	}
	if width > 32 {
		return corruptf("values of %d bits", width)
	}
	mask := uint64(1)<<width - 1
	valueBytes := int(width+7) / 8
	for len(dst) > 0 {
		h, n := binary.Uvarint(src)
		if n <= 0 {
			return corruptf("run-length data ends %d values too early", len(dst))
		}
		src = src[n:]
		count := h >> 1
		if h&1 == 0 {
			if len(src) < valueBytes {
				return corruptf("run-length data ends inside a run")
			}
			var v uint64
			for i := range valueBytes {
				v |= uint64(src[i]) << (8 * i)
			}
			src = src[valueBytes:]
			k := int(min(count, uint64(len(dst))))
			x := T(v & mask)
			for i := range dst[:k] {
				dst[i] = x
			}
			dst = dst[k:]
			continue
		}
		if count > uint64(len(src)) { // a group of eight takes width bytes, one at least
			return corruptf("run-length data ends inside a packed run")
		}
		size := int(count) * int(width)
		k := int(min(count*8, uint64(len(dst))))
		if size > len(src) {
			// The last run of a page may be cut after the last value.
			if size = (k*int(width) + 7) / 8; size > len(src) {
				return corruptf("run-length data ends inside a packed run")
			}
		}
		unpack(dst[:k], src, width)
		src, dst = src[size:], dst[k:]
	}
	return nil
}

// unpack reads len(dst) values of width bits, least significant bit first. src
// has enough bytes.
func unpack[T uint8 | uint32](dst []T, src []byte, width uint) {
	mask := uint64(1)<<width - 1
	bit := uint(0)
	i := 0
	for ; i < len(dst); i++ {
		at := int(bit >> 3)
		if at+8 > len(src) {
			break
		}
		dst[i] = T(binary.LittleEndian.Uint64(src[at:]) >> (bit & 7) & mask)
		bit += width
	}
	for ; i < len(dst); i++ {
		at := int(bit >> 3)
		var w uint64
		for j := 0; j < 8 && at+j < len(src); j++ {
			w |= uint64(src[at+j]) << (8 * j)
		}
		dst[i] = T(w >> (bit & 7) & mask)
		bit += width
	}
}

// unpackBE reads levels in the deprecated BIT_PACKED encoding, most significant
// bit first.
func unpackBE(dst []uint8, src []byte, width uint) error {
	if (uint(len(dst))*width+7)/8 > uint(len(src)) {
		return corruptf("packed levels end too early")
	}
	bit := uint(0)
	for i := range dst {
		var v uint8
		for range width {
			v = v<<1 | src[bit>>3]>>(7-bit&7)&1
			bit++
		}
		dst[i] = v
	}
	return nil
}

// decodeDelta decodes DELTA_BINARY_PACKED; more than limit values are an error.
func decodeDelta(src []byte, limit int) (vals []int64, rest []byte, err error) {
	short := func() ([]int64, []byte, error) { return nil, nil, corruptf("delta encoded data ends too early") }
	uvar := func() (uint64, bool) {
		v, n := binary.Uvarint(src)
		if n <= 0 {
			return 0, false
		}
		src = src[n:]
		return v, true
	}
	block, ok1 := uvar()
	minis, ok2 := uvar()
	total, ok3 := uvar()
	first, ok4 := uvar()
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return short()
	}
	if total > uint64(limit) || minis == 0 || minis > 512 || block == 0 || block > 1<<16 || block%minis != 0 || block/minis%8 != 0 {
		return nil, nil, corruptf("delta encoding: %d values of at most %d, blocks of %d in %d", total, limit, block, minis)
	}
	if total == 0 {
		return nil, src, nil
	}
	per := int(block / minis)
	vals = make([]int64, 1, total)
	vals[0] = unzigzag(first)
	last := vals[0]
	for len(vals) < int(total) {
		m, ok := uvar()
		if !ok || len(src) < int(minis) {
			return short()
		}
		minDelta := unzigzag(m)
		widths := src[:minis]
		src = src[minis:]
		for _, w := range widths {
			if len(vals) == int(total) {
				break
			}
			if w > 64 {
				return nil, nil, corruptf("delta encoding: %d bits", w)
			}
			k := min(per, int(total)-len(vals))
			size := per * int(w) / 8
			if size > len(src) {
				if size = (k*int(w) + 7) / 8; size > len(src) {
					return short()
				}
			}
			for i := range k {
				last += minDelta + int64(bitsAt(src, uint(i)*uint(w), uint(w)))
				vals = append(vals, last)
			}
			src = src[size:]
		}
	}
	return vals, src, nil
}

func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// bitsAt reads width bits at a bit position, least significant first.
func bitsAt(src []byte, bit, width uint) uint64 {
	if width == 0 {
		return 0
	}
	at, shift := int(bit>>3), bit&7
	var lo, hi uint64
	if at+8 <= len(src) {
		lo = binary.LittleEndian.Uint64(src[at:])
	} else {
		for j := 0; at+j < len(src); j++ {
			lo |= uint64(src[at+j]) << (8 * j)
		}
	}
	if shift+width > 64 && at+8 < len(src) {
		hi = uint64(src[at+8])
	}
	v := lo >> shift
	if shift > 0 {
		v |= hi << (64 - shift)
	}
	if width < 64 {
		v &= 1<<width - 1
	}
	return v
}

// deltaFixed turns delta encoded integers into plain ones of 4 or 8 bytes.
func deltaFixed(src []byte, n, width int) ([]byte, error) {
	vals, _, err := decodeDelta(src, n)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(vals)*width)
	for _, v := range vals {
		if width == 4 {
			out = binary.LittleEndian.AppendUint32(out, uint32(v))
		} else {
			out = binary.LittleEndian.AppendUint64(out, uint64(v))
		}
	}
	return out, nil
}

// deltaLengths turns DELTA_LENGTH_BYTE_ARRAY into plain byte arrays.
func deltaLengths(src []byte, n int) ([]byte, error) {
	lens, data, err := decodeDelta(src, n)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(data)+4*len(lens))
	for _, l := range lens {
		if l < 0 || l > int64(len(data)) {
			return nil, corruptf("byte array of %d bytes where %d are left", l, len(data))
		}
		out = binary.LittleEndian.AppendUint32(out, uint32(l))
		out = append(out, data[:l]...)
		data = data[l:]
	}
	return out, nil
}

// deltaStrings turns DELTA_BYTE_ARRAY (front coding) into plain byte arrays, or
// into values of fixed length if fixed > 0.
func deltaStrings(src []byte, n, fixed int) ([]byte, error) {
	prefixes, rest, err := decodeDelta(src, n)
	if err != nil {
		return nil, err
	}
	lens, data, err := decodeDelta(rest, n)
	if err != nil {
		return nil, err
	}
	if len(lens) != len(prefixes) {
		return nil, corruptf("%d prefixes for %d suffixes", len(prefixes), len(lens))
	}
	// The whole size is known, and checked, before anything is copied.
	limit := int64(min(max(bombSize, bombRatio*len(src)), maxPageSize))
	total, before, left := int64(0), int64(0), int64(len(data))
	for i, l := range lens {
		p := prefixes[i]
		if l < 0 || l > left || p < 0 || p > before {
			return nil, corruptf("byte array with prefix %d of %d and %d of %d bytes", p, before, l, left)
		}
		left, before = left-l, p+l
		if fixed > 0 && before != int64(fixed) {
			return nil, corruptf("value of %d bytes in a column of %d", before, fixed)
		}
		if total += before + 4; total > limit {
			return nil, unsupportedf("page of %d bytes that unpacks to more than %d", len(src), limit)
		}
	}
	out := make([]byte, 0, total)
	var last []byte
	for i, l := range lens {
		p := prefixes[i]
		if fixed == 0 {
			out = binary.LittleEndian.AppendUint32(out, uint32(p+l))
		}
		start := len(out)
		out = append(out, last[:p]...)
		out = append(out, data[:l]...)
		last = out[start:]
		data = data[l:]
	}
	return out, nil
}

// splitStreams undoes BYTE_STREAM_SPLIT for n values of width bytes.
func splitStreams(src []byte, n, width int) ([]byte, error) {
	if len(src) < n*width {
		return nil, corruptf("%d bytes for %d split values of %d", len(src), n, width)
	}
	stride := len(src) / width
	out := make([]byte, n*width)
	for j := range width {
		s := src[j*stride:]
		for i := range n {
			out[i*width+j] = s[i]
		}
	}
	return out, nil
}
