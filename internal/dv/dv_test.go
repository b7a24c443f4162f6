package dv

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/sluice-data/sluice/storage"
)

func TestDescriptor_Location(t *testing.T) {
	t.Run("R-651 random prefix", func(t *testing.T) {
		got, err := Descriptor{StorageType: "u", PathOrInlineDv: "ab^-aqEH.-t@S}K{vb[*k^"}.Location()
		if want := "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"; err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	})
	for _, bad := range []Descriptor{{StorageType: "u", PathOrInlineDv: "short"}, {StorageType: "u", PathOrInlineDv: "~~~~~~~~~~~~~~~~~~~~"}, {StorageType: "x"}} {
		if _, err := bad.Location(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// encode is the data of a vector with the given rows.
func encode(t testing.TB, rows ...int64) []byte {
	t.Helper()
	b := binary.LittleEndian.AppendUint32(nil, magic)
	byKey := map[uint32]*roaring.Bitmap{}
	var keys []uint32
	for _, r := range rows {
		k := uint32(r >> 32)
		if byKey[k] == nil {
			byKey[k] = roaring.New()
			keys = append(keys, k)
		}
		byKey[k].Add(uint32(r))
	}
	slices.Sort(keys)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(keys)))
	for _, k := range keys {
		byKey[k].RunOptimize()
		b = binary.LittleEndian.AppendUint32(b, k)
		m, err := byKey[k].ToBytes()
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, m...)
	}
	return b
}

// file lays data out as a .bin file: version, length, data, checksum.
func file(data []byte) []byte {
	b := []byte{formatVersion}
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	b = append(b, data...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(data))
}

func TestLoad(t *testing.T) {
	ctx := context.Background()
	t.Run("R-652 inline", func(t *testing.T) {
		v, err := Load(ctx, Descriptor{StorageType: "i", PathOrInlineDv: "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", SizeInBytes: 40, Cardinality: 6}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Collect(v.Rows()); !slices.Equal(got, []int64{3, 4, 7, 11, 18, 29}) {
			t.Errorf("rows %v", got)
		}
		w, err := Load(ctx, Descriptor{StorageType: "i", PathOrInlineDv: "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", SizeInBytes: 44, Cardinality: 6}, nil)
		if err != nil || !slices.Equal(slices.Collect(w.Rows()), slices.Collect(v.Rows())) {
			t.Errorf("portable form: %v", err)
		}
		if v.Contains(5) || !v.Contains(29) || v.Contains(-1) || v.Max() != 29 {
			t.Error("wrong membership")
		}
	})
	many := []int64{0, 1, 2, 3, 70000, 1 << 32, 1<<32 + 5, 5 << 33}
	for i := int64(100000); i < 180000; i += 2 { // a bitmap container, and a run below
		many = append(many, i)
	}
	for i := int64(200000); i < 260000; i++ {
		many = append(many, i)
	}
	slices.Sort(many)
	data := encode(t, many...)
	one := int32(1)
	desc := Descriptor{StorageType: "p", PathOrInlineDv: "x.bin", Offset: &one, SizeInBytes: int32(len(data)), Cardinality: int64(len(many))}
	load := func(d Descriptor, file []byte) (*Vector, error) {
		s := storage.NewMemory("dv")
		if err := s.Put(ctx, "x.bin", file); err != nil {
			t.Fatal(err)
		}
		return Load(ctx, d, s.Open)
	}
	t.Run("R-654 array, bitmap and run containers, several buckets", func(t *testing.T) {
		v, err := load(desc, file(data))
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Collect(v.Rows()); !slices.Equal(got, many) {
			t.Errorf("%d rows, want %d", len(got), len(many))
		}
		w, err := Parse(encode(t, 1, 1<<32))
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Collect(w.Minus(v).Rows()); len(got) != 0 {
			t.Errorf("minus: %v", got)
		}
		if got := v.Minus(w).Cardinality(); got != int64(len(many)-2) {
			t.Errorf("minus: %d", got)
		}
	})
	t.Run("R-653 missing offset", func(t *testing.T) {
		d := desc
		d.Offset = nil
		if _, err := load(d, file(data)); err != nil {
			t.Error(err)
		}
	})
	good := file(data)
	bad := map[string]func() (Descriptor, []byte){
		"version":     func() (Descriptor, []byte) { b := slices.Clone(good); b[0] = 2; return desc, b },
		"stored size": func() (Descriptor, []byte) { b := slices.Clone(good); b[4]++; return desc, b },
		"checksum":    func() (Descriptor, []byte) { b := slices.Clone(good); b[len(b)-1]++; return desc, b },
		"data":        func() (Descriptor, []byte) { b := slices.Clone(good); b[30]++; return desc, b },
		"cut off":     func() (Descriptor, []byte) { return desc, good[:len(good)-9] },
		"empty":       func() (Descriptor, []byte) { return desc, nil },
		"cardinality": func() (Descriptor, []byte) { d := desc; d.Cardinality++; return d, good },
		"magic":       func() (Descriptor, []byte) { b := slices.Clone(data); b[0]++; return desc, file(b) },
		"offset":      func() (Descriptor, []byte) { d := desc; n := int32(1 << 30); d.Offset = &n; return d, good },
	}
	for name, make := range bad {
		t.Run("R-653 bad "+name, func(t *testing.T) {
			d, b := make()
			if _, err := load(d, b); !errors.Is(err, ErrCorrupt) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(encode(f, 1, 2, 3))
	f.Add(encode(f, 0, 1<<32))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Parse(b)
		if err != nil {
			return
		}
		if n := v.Cardinality(); n > 0 && n < 1<<20 && len(slices.Collect(v.Rows())) != int(n) {
			t.Error("rows and cardinality differ")
		}
	})
}
