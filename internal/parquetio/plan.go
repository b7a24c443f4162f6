package parquetio

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/log/schema"
)

type planKind uint8

const (
	planNull planKind = iota // not in the file
	planLeaf
	planStruct
	planList
	planMap
	planVariant // joined from what is shredded over several columns
)

// planNode says how one wanted type is built from the levels and values of leaf
// columns. A slot is a place for a value inside the closest enclosing list (or
// row): a level entry with rep <= ancRep and def >= ancDef.
type planNode struct {
	kind    planKind
	typ     arrow.DataType
	column  string
	ancRep  uint8
	ancDef  uint8
	def     uint8 // level from which the value, for lists the list itself, is not null
	rep     uint8 // lists: repetition level of the elements
	elemDef uint8 // lists: level from which there is an element
	slot    int   // index into plan.leaves: the values, for groups a leaf that shows the shape
	conv    converter
	kids    []*planNode
}

type planLeafUse struct {
	leaf       int
	levelsOnly bool
}

// plan is the way from the columns of a file to batches of the wanted schema.
type plan struct {
	f      *File
	schema *arrow.Schema
	roots  []*planNode
	leaves []planLeafUse
	byID   bool
}

func (f *File) plan(want *schema.Struct, byID bool) (*plan, error) {
	as, err := schema.ArrowSchema(want)
	if err != nil {
		return nil, err
	}
	p := &plan{f: f, schema: as, byID: byID}
	for i, fld := range want.Fields {
		n, err := f.root.child(fld, byID)
		if err != nil {
			return nil, err
		}
		root, err := p.node(n, fld.Type, as.Field(i).Type, fld.Name)
		if err != nil {
			return nil, err
		}
		p.roots = append(p.roots, root)
	}
	return p, nil
}

// use returns the slot of a leaf, adding it if needed.
func (p *plan) use(n *node, levelsOnly bool) int {
	for i := range p.leaves {
		if p.leaves[i].leaf == n.leaf {
			p.leaves[i].levelsOnly = p.leaves[i].levelsOnly && levelsOnly
			return i
		}
	}
	p.leaves = append(p.leaves, planLeafUse{n.leaf, levelsOnly})
	return len(p.leaves) - 1
}

func firstLeaf(n *node) *node {
	if n.isLeaf() {
		return n
	}
	for _, c := range n.children {
		if l := firstLeaf(c); l != nil {
			return l
		}
	}
	return nil
}

// node plans a field of the file that may itself be repeated, which makes it a
// list without wrapper.
func (p *plan) node(n *node, want schema.Type, typ arrow.DataType, column string) (*planNode, error) {
	if n == nil || want == schema.Void || firstLeaf(n) == nil {
		return &planNode{kind: planNull, typ: typ, column: column}, nil
	}
	if n.repetition != repeated {
		return p.bare(n, want, typ, column)
	}
	arr, ok := want.(*schema.Array)
	if !ok {
		return nil, mismatch(n, want, column)
	}
	return p.list(n, n, n.parent.maxDef, arr, typ.(*arrow.ListType), column)
}

func mismatch(n *node, want schema.Type, column string) error {
	file := n.String()
	if !n.isLeaf() {
		file = n.bareType().String()
	}
	if n.repetition == repeated {
		file = "repeated " + file
	}
	return &TypeMismatchError{Column: column, FileType: file, Want: want.String()}
}

func (p *plan) list(rep, elem *node, def uint8, want *schema.Array, typ *arrow.ListType, column string) (*planNode, error) {
	out := &planNode{
		kind: planList, typ: typ, column: column, ancRep: rep.maxRep - 1, ancDef: enclosing(rep),
		def: def, rep: rep.maxRep, elemDef: rep.maxDef,
	}
	plan := p.node
	if elem == rep {
		plan = p.bare
	}
	kid, err := plan(elem, want.Elem, typ.Elem(), column+".element")
	if err != nil {
		return nil, err
	}
	out.kids = []*planNode{kid}
	out.slot = p.shape(kid, rep)
	return out, nil
}

// enclosing is the definition level at which an element of the list around the
// repeated node n (or the row) exists.
func enclosing(n *node) uint8 {
	for a := n.parent; a != nil; a = a.parent {
		if a.repetition == repeated && a.parent != nil {
			return a.maxDef
		}
	}
	return 0
}

// shape is the slot of a leaf below n whose levels show the shape of n: one that
// is read anyway, else the first.
func (p *plan) shape(kid *planNode, n *node) int {
	if kid.kind != planNull {
		return kid.slot
	}
	return p.use(firstLeaf(n), true)
}

// bare plans a node without regard to its own repetition.
func (p *plan) bare(n *node, want schema.Type, typ arrow.DataType, column string) (*planNode, error) {
	if want == schema.Variant {
		return p.variant(n, typ, column)
	}
	ancRep, ancDef := n.maxRep, enclosing(n)
	if n.repetition == repeated && n.parent != nil {
		ancDef = n.maxDef
	}
	out := &planNode{typ: typ, column: column, ancRep: ancRep, ancDef: ancDef, def: n.maxDef}
	switch want := want.(type) {
	case *schema.Struct:
		if n.isLeaf() || n.logical.kind == logicalList || n.logical.kind == logicalMap || n.logical.kind == logicalKeyValue {
			return nil, mismatch(n, want, column)
		}
		out.kind = planStruct
		st := typ.(*arrow.StructType)
		out.slot = -1
		for i, fld := range want.Fields {
			c, err := n.child(fld, p.byID)
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", column, err)
			}
			kid, err := p.node(c, fld.Type, st.Field(i).Type, column+"."+fld.Name)
			if err != nil {
				return nil, err
			}
			if kid.kind != planNull && (out.slot < 0 || kid.kind == planLeaf && p.f.leaves[p.leaves[out.slot].leaf].maxRep > n.maxRep) {
				out.slot = kid.slot
			}
			out.kids = append(out.kids, kid)
		}
		if out.slot < 0 {
			out.slot = p.use(firstLeaf(n), true)
		}
		return out, nil
	case *schema.Array:
		_, wantStruct := want.Elem.(*schema.Struct)
		rep, elem, ok := n.listShape(true, wantStruct)
		if !ok || n.logical.kind != logicalList && n.logical.kind != logicalNone {
			return nil, mismatch(n, want, column)
		}
		return p.list(rep, elem, n.maxDef, want, typ.(*arrow.ListType), column)
	case *schema.Map:
		rep, k, v, ok := n.mapShape()
		if !ok || n.logical.kind != logicalMap && n.logical.kind != logicalKeyValue && n.logical.kind != logicalNone {
			return nil, mismatch(n, want, column)
		}
		mt := typ.(*arrow.MapType)
		out.kind, out.ancRep, out.ancDef = planMap, rep.maxRep-1, enclosing(rep)
		out.rep, out.elemDef = rep.maxRep, rep.maxDef
		key, err := p.node(k, want.Key, mt.KeyType(), column+".key")
		if err != nil {
			return nil, err
		}
		if key.kind == planNull {
			return nil, mismatch(n, want, column)
		}
		val, err := p.node(v, want.Value, mt.ItemType(), column+".value")
		if err != nil {
			return nil, err
		}
		out.kids = []*planNode{key, val}
		out.slot = key.slot
		return out, nil
	}
	if !n.isLeaf() {
		return nil, mismatch(n, want, column)
	}
	conv, err := p.f.converter(n, want)
	if err != nil {
		return nil, err
	}
	if conv == nil {
		return nil, mismatch(n, want, column)
	}
	out.kind, out.conv = planLeaf, conv
	out.slot = p.use(n, false)
	return out, nil
}

func pathString(path []string) string { return strings.Join(path, ".") }
