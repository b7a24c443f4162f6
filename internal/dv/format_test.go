package dv

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
)

func TestDescriptor_Path(t *testing.T) {
	t.Run("R-651 prefix and UUID", func(t *testing.T) {
		d := Descriptor{StorageType: Relative, PathOrInlineDv: "ab^-aqEH.-t@S}K{vb[*k^"}
		key, abs, err := d.Path()
		if want := "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"; key != want || abs || err != nil {
			t.Fatalf("%q %v %v", key, abs, err)
		}
		id := uuid.MustParse("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
		if got := EncodePath("ab", id); got != d.PathOrInlineDv {
			t.Fatal(got)
		}
		d.PathOrInlineDv = EncodePath("", id)
		if key, _, _ := d.Path(); key != "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin" {
			t.Fatal(key)
		}
	})
	t.Run("absolute path as it stands", func(t *testing.T) {
		d := Descriptor{StorageType: Absolute, PathOrInlineDv: "s3://b/x%20y.bin"}
		if key, abs, err := d.Path(); key != d.PathOrInlineDv || !abs || err != nil {
			t.Fatal(key, abs, err)
		}
	})
	for _, d := range []Descriptor{
		{StorageType: Relative, PathOrInlineDv: "short"},
		{StorageType: Relative, PathOrInlineDv: "^-aqEH.-t@S}K{vb[*k~"},
		{StorageType: Relative, PathOrInlineDv: "#####################"},
		{StorageType: Relative, PathOrInlineDv: "../x^-aqEH.-t@S}K{vb[*k^"},
		{StorageType: Absolute},
		{StorageType: Inline, PathOrInlineDv: "00000"},
		{StorageType: "z"},
	} {
		if _, _, err := d.Path(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%+v: %v", d, err)
		}
	}
}

func TestDescriptor_UniqueID(t *testing.T) {
	off := int32(7)
	if got := (Descriptor{StorageType: "u", PathOrInlineDv: "abc", Offset: &off}).UniqueID(); got != "uabc@7" {
		t.Fatal(got)
	}
	if got := (Descriptor{StorageType: "i", PathOrInlineDv: "abc"}).UniqueID(); got != "iabc" {
		t.Fatal(got)
	}
}

func TestDescriptor_DecodeInline(t *testing.T) {
	d := Descriptor{StorageType: Inline, PathOrInlineDv: "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", SizeInBytes: 40, Cardinality: 6}
	t.Run("R-652 vector of the protocol", func(t *testing.T) {
		bm, err := d.DecodeInline()
		if err != nil {
			t.Fatal(err)
		}
		if want := []uint64{3, 4, 7, 11, 18, 29}; !slices.Equal(bm.ToArray(), want) {
			t.Fatal(bm.ToArray())
		}
	})
	t.Run("R-653 disagreement fails", func(t *testing.T) {
		for name, bad := range map[string]Descriptor{
			"size":        {Inline, d.PathOrInlineDv, nil, 36, 6},
			"cardinality": {Inline, d.PathOrInlineDv, nil, 40, 5},
			"no deletes":  {Inline, d.PathOrInlineDv, nil, 40, 0},
			"text":        {Inline, d.PathOrInlineDv[1:], nil, 40, 6},
			"type":        {Relative, d.PathOrInlineDv, nil, 40, 6},
			"negative":    {Inline, d.PathOrInlineDv, nil, -1, 6},
		} {
			if _, err := bad.DecodeInline(); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("portable form of the same rows", func(t *testing.T) {
		d := Descriptor{Inline, "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", nil, 44, 6}
		bm, err := d.DecodeInline()
		if err != nil || !slices.Equal(bm.ToArray(), []uint64{3, 4, 7, 11, 18, 29}) {
			t.Fatal(bm, err)
		}
		if got := EncodeInline(bm); got != d {
			t.Fatalf("%+v", got)
		}
	})
	t.Run("native form, several buckets", func(t *testing.T) {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			data := order.AppendUint32(order.AppendUint32(nil, nativeMagic), 3)
			for _, bm := range []*roaring.Bitmap{roaring.BitmapOf(1), roaring.New(), roaring.BitmapOf(2, 3)} {
				b, _ := bm.ToBytes()
				data = append(order.AppendUint32(data, uint32(len(b))), b...)
			}
			bm, err := Descriptor{SizeInBytes: int32(len(data)), Cardinality: 3}.Decode(data)
			if err != nil || !slices.Equal(bm.ToArray(), []uint64{1, 2<<32 + 2, 2<<32 + 3}) {
				t.Fatal(bm, err)
			}
		}
	})
}

// sets of rows whose containers are arrays, bitmaps and runs, in one or several buckets.
func drawSet(t *rapid.T) *roaring64.Bitmap {
	bm := roaring64.New()
	for range rapid.IntRange(0, 5).Draw(t, "parts") {
		base := rapid.Uint64Range(0, 3<<32).Draw(t, "base")
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			bm.Add(base)
		case 1:
			bm.AddRange(base, base+rapid.Uint64Range(1, 100000).Draw(t, "len"))
		case 2:
			for i := range uint64(6000) {
				bm.Add(base + i*3)
			}
		default:
			for i := range uint64(50) {
				bm.Add(base + i*i*17)
			}
		}
	}
	return bm
}

func TestWriteFile_RoundTrip(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		var sets []*roaring64.Bitmap
		for range rapid.IntRange(1, 4).Draw(t, "sets") {
			sets = append(sets, drawSet(t))
		}
		file, places, err := WriteFile(sets)
		if err != nil {
			t.Fatal(err)
		}
		next := int32(1)
		for i, p := range places {
			if *p.Offset != next { // W-653
				t.Fatalf("offset %d, want %d", *p.Offset, next)
			}
			next += 4 + p.SizeInBytes + 4
			p.StorageType, p.PathOrInlineDv = Relative, EncodePath("", uuid.UUID{1})
			got, err := p.ReadFrom(bytes.NewReader(file), int64(len(file)))
			if err != nil || !got.Equals(sets[i]) {
				t.Fatalf("set %d: %v", i, err)
			}
			if p.Cardinality != int64(sets[i].GetCardinality()) {
				t.Fatal("cardinality", p.Cardinality)
			}
			in := EncodeInline(sets[i])
			if got, err := in.DecodeInline(); err != nil || !got.Equals(sets[i]) {
				t.Fatalf("inline %d: %v", i, err)
			}
		}
		// Any changed byte is found out: the checksum covers the data.
		at := rapid.IntRange(0, len(file)-1).Draw(t, "flip")
		bad := bytes.Clone(file)
		bad[at] ^= 0x40
		failed := false
		for _, p := range places {
			p.StorageType = Absolute
			_, err := p.ReadFrom(bytes.NewReader(bad), int64(len(bad)))
			failed = failed || errors.Is(err, ErrCorrupt)
		}
		if !failed {
			t.Fatalf("flipped byte %d of %d was not found", at, len(file))
		}
	})
}

func TestWriteFile(t *testing.T) {
	a, b := roaring64.BitmapOf(1<<33, 5, 7), roaring64.BitmapOf(9)
	file, places, err := WriteFile([]*roaring64.Bitmap{a, b})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("W-653 first at offset 1, next at +4+size+4", func(t *testing.T) {
		if *places[0].Offset != 1 || *places[1].Offset != 1+4+places[0].SizeInBytes+4 || file[0] != 1 {
			t.Error(places)
		}
		if len(file) != int(*places[1].Offset+4+places[1].SizeInBytes+4) {
			t.Error(len(file))
		}
	})
	t.Run("W-654 cardinality, size and ascending buckets", func(t *testing.T) {
		if places[0].Cardinality != 3 || int(places[0].SizeInBytes) != len(Encode(a)) {
			t.Error(places[0])
		}
		data := file[5 : 5+places[0].SizeInBytes]
		if binary.LittleEndian.Uint64(data[4:]) != 2 || binary.LittleEndian.Uint32(data[12:]) != 0 {
			t.Errorf("%x", data)
		}
	})
	t.Run("W-652 union with the old vector", func(t *testing.T) {
		v := NewVector(a)
		grown := v.Bitmap()
		grown.Or(b)
		if v.Cardinality() != 3 || NewVector(grown).Cardinality() != 4 {
			t.Error("the old vector changed")
		}
	})
}

func TestDescriptor_ReadFrom(t *testing.T) {
	bm := roaring64.BitmapOf(1, 2, 900, 1<<33)
	file, places, err := WriteFile([]*roaring64.Bitmap{bm})
	if err != nil {
		t.Fatal(err)
	}
	d := places[0]
	d.StorageType, d.PathOrInlineDv = Absolute, "file:/x"
	t.Run("R-653 absent offset is 1 or 0", func(t *testing.T) {
		d := d
		d.Offset = nil
		for name, b := range map[string][]byte{"1": file, "0": file[1:]} {
			if got, err := d.ReadFrom(bytes.NewReader(b), int64(len(b))); err != nil || !got.Equals(bm) {
				t.Errorf("offset %s: %v", name, err)
			}
		}
	})
	t.Run("R-653 version byte", func(t *testing.T) {
		b := bytes.Clone(file)
		b[0] = 2
		if _, err := d.ReadFrom(bytes.NewReader(b), int64(len(b))); !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
	t.Run("cut file", func(t *testing.T) {
		for n := range file {
			if _, err := d.ReadFrom(bytes.NewReader(file[:n]), int64(n)); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%d bytes: %v", n, err)
			}
			if _, err := d.ReadFrom(bytes.NewReader(file[:n]), int64(len(file))); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%d bytes of %d: %v", n, len(file), err)
			}
		}
	})
	t.Run("errors of the store stay what they are", func(t *testing.T) {
		_, err := d.ReadFrom(failing{}, int64(len(file)))
		if !errors.Is(err, iotest.ErrTimeout) || errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
	t.Run("R-654 empty buckets and no offset header", func(t *testing.T) {
		data := binary.LittleEndian.AppendUint32(nil, magic)
		data = binary.LittleEndian.AppendUint64(data, 2)
		empty, _ := roaring.New().ToBytes()
		runs := roaring.New()
		runs.AddRange(10, 20)
		runs.RunOptimize()
		second, _ := runs.ToBytes()
		for key, b := range [][]byte{empty, second} {
			data = binary.LittleEndian.AppendUint32(data, uint32(key))
			data = append(data, b...)
		}
		got, err := Descriptor{SizeInBytes: int32(len(data)), Cardinality: 10}.Decode(data)
		if err != nil || !got.Contains(1<<32+19) || got.GetCardinality() != 10 {
			t.Fatal(got, err)
		}
	})
}

type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, iotest.ErrTimeout }

// Vectors written by Spark: every descriptor in the logs of golden tables that have many decodes.
func TestDescriptor_ReadGolden(t *testing.T) {
	dir := testenv.SharedDir(t, "golden")
	count := 0
	for _, kind := range []string{"reads", "features", "cdf", "spark"} {
		archives, _ := filepath.Glob(filepath.Join(dir, kind, "*dv*.tar.zst"))
		more, _ := filepath.Glob(filepath.Join(dir, kind, "*comp*ct*.tar.zst"))
		for _, a := range append(archives, more...) {
			files := readArchive(t, a)
			for name, b := range files {
				root, _, ok := strings.Cut(name, "_delta_log/")
				if !ok || !strings.HasSuffix(name, ".json") {
					continue
				}
				for _, d := range descriptors(b) {
					var err error
					if d.StorageType == Inline {
						_, err = d.DecodeInline()
					} else {
						key, abs, perr := d.Path()
						if perr != nil {
							t.Fatalf("%s: %v", a, perr)
						}
						f, there := files[path.Join(root, key)]
						if abs || !there {
							continue // vacuumed, or of another place
						}
						_, err = d.ReadFrom(bytes.NewReader(f), int64(len(f)))
					}
					// That table's last vector ends in padding that is not Z85.
					bad := strings.Contains(name, "cdf-table-with-dv") && d.PathOrInlineDv == "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093"
					if (err != nil) != bad || bad && !errors.Is(err, ErrCorrupt) {
						t.Errorf("%s: %s: %v", filepath.Base(a), name, err)
					}
					count++
				}
			}
		}
	}
	if count < 100 {
		t.Fatalf("only %d deletion vectors found", count)
	}
	t.Logf("%d vectors", count)
}

func descriptors(log []byte) []Descriptor {
	type action struct {
		DeletionVector *struct {
			StorageType    string
			PathOrInlineDv string
			Offset         *int32
			SizeInBytes    int32
			Cardinality    int64
		}
	}
	var out []Descriptor
	for line := range bytes.Lines(log) {
		var l struct{ Add, Remove *action }
		if json.Unmarshal(line, &l) != nil {
			continue
		}
		for _, a := range []*action{l.Add, l.Remove} {
			if a != nil && a.DeletionVector != nil {
				d := a.DeletionVector
				out = append(out, Descriptor{d.StorageType, d.PathOrInlineDv, d.Offset, d.SizeInBytes, d.Cardinality})
			}
		}
	}
	return out
}

func readArchive(tb testing.TB, p string) map[string][]byte {
	f, err := os.Open(p)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	defer z.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			tb.Fatal(err)
		}
		if files[path.Clean(h.Name)], err = io.ReadAll(r); err != nil {
			tb.Fatal(err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, bm := range []*roaring64.Bitmap{roaring64.New(), roaring64.BitmapOf(1, 5, 1<<32), roaring64.BitmapOf(7)} {
		bm.AddRange(100, 200)
		f.Add(Encode(bm), int64(bm.GetCardinality()))
	}
	many := roaring64.New()
	for i := range uint64(5000) {
		many.Add(i * 2)
	}
	f.Add(Encode(many), int64(5000))
	f.Fuzz(func(t *testing.T, data []byte, card int64) {
		d := Descriptor{StorageType: Absolute, PathOrInlineDv: "x", SizeInBytes: int32(len(data)), Cardinality: card}
		bm, err := d.Decode(data)
		file := append([]byte{formatVersion}, binary.BigEndian.AppendUint32(nil, uint32(len(data)))...)
		file = append(file, data...)
		file = binary.BigEndian.AppendUint32(file, crc32.ChecksumIEEE(data))
		stored, err2 := d.ReadFrom(bytes.NewReader(file), int64(len(file)))
		if (err == nil) != (err2 == nil) {
			t.Fatalf("decode: %v, read: %v", err, err2)
		}
		if err != nil {
			return
		}
		if !stored.Equals(bm) || bm.GetCardinality() != uint64(card) {
			t.Fatal("sets differ")
		}
		n := int64(0)
		last := int64(-1)
		for it := bm.Iterator(); it.HasNext(); n++ {
			v := int64(it.Next())
			if v <= last {
				t.Fatalf("%d after %d", v, last)
			}
			last = v
			if n > 1<<20 {
				return
			}
		}
		if n != card {
			t.Fatalf("%d values, want %d", n, card)
		}
		again, err := Descriptor{SizeInBytes: int32(len(Encode(bm))), Cardinality: card}.Decode(Encode(bm))
		if err != nil || !again.Equals(bm) {
			t.Fatalf("encoded again: %v", err)
		}
	})
}

func BenchmarkDescriptor_Decode(b *testing.B) {
	bm := roaring64.New()
	for i := range uint64(100_000) {
		bm.Add(i * 37)
	}
	d := EncodeInline(bm)
	data := Encode(bm)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := d.Decode(data); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzDescriptor: any text of a descriptor is a place inside the table, an absolute
// path, or refused.
func FuzzDescriptor(f *testing.F) {
	f.Add("u", "ab^-aqEH.-t@S}K{vb[*k^", int32(40), int64(6))
	f.Add("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", int32(40), int64(6))
	f.Add("p", "file:///x", int32(1), int64(1))
	f.Add("u", "../../../^-aqEH.-t@S}K{vb[*k^", int32(1), int64(1))
	f.Fuzz(func(t *testing.T, kind, text string, size int32, card int64) {
		d := Descriptor{StorageType: kind, PathOrInlineDv: text, SizeInBytes: size, Cardinality: card}
		key, absolute, err := d.Path()
		switch {
		case err != nil:
		case absolute != (kind == Absolute):
			t.Fatalf("%+v is at %q, absolute %v", d, key, absolute)
		case kind == Relative && (!strings.HasSuffix(key, ".bin") || !strings.Contains(key, "deletion_vector_")):
			t.Fatalf("%+v is at %q", d, key)
		}
		if bm, err := d.DecodeInline(); err == nil && (kind != Inline || int64(bm.GetCardinality()) != card) {
			t.Fatalf("%+v has %d rows", d, bm.GetCardinality())
		}
	})
}
