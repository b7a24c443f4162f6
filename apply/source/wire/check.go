package wire

import "github.com/sluice-data/sluice/apply/event"

// Check is the poison that [Table.Add] would find in a row, nil if it would take the
// row in: of two rows that one record makes, the second is checked before the first
// is added.
func (t *Table) Check(r *Row) error {
	if r.Op == event.Truncate {
		return nil
	}
	if err := t.checkKeys(r); err != nil {
		return err
	}
	return t.checkFields(r)
}
