package schema

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// CharLimit reads the length limit of a string column; char tells that shorter
// values are padded with spaces (W-405). n is -1 when there is no limit.
func CharLimit(f Field) (n int, char bool) {
	raw, ok := f.Metadata.Get(CharVarcharKey)
	if !ok || f.Type != String {
		return -1, false
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return -1, false
	}
	text = strings.ToLower(strings.TrimSpace(text))
	rest, char := strings.CutPrefix(text, "char(")
	if !char {
		if rest, ok = strings.CutPrefix(text, "varchar("); !ok {
			return -1, false
		}
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(rest, ")")))
	if err != nil {
		return -1, false
	}
	return n, char
}

// CanChangeLength tells, as Spark does, whether a string column may go from one length to
// another, both as [CharVarcharKey] keeps them, "" being STRING: what every value that is
// there fits. The answer is why not.
func CanChangeLength(from, to string) string {
	of := func(text string) (int, bool) {
		return CharLimit(Field{Type: String, Metadata: Metadata{}.With(CharVarcharKey, text)})
	}
	was, _ := of(from)
	is, toChar := of(to)
	switch {
	case to == "" || strings.EqualFold(from, to):
		return ""
	case is < 0:
		return fmt.Sprintf("%s is neither CHAR(n) nor VARCHAR(n)", to)
	case was < 0:
		return fmt.Sprintf("STRING cannot become %s: rows that are there may be longer", strings.ToUpper(to))
	case toChar:
		return fmt.Sprintf("%s cannot become %s: rows that are there have another length", strings.ToUpper(from), strings.ToUpper(to))
	case is < was:
		return fmt.Sprintf("%s cannot become %s: rows that are there may be longer", strings.ToUpper(from), strings.ToUpper(to))
	}
	return ""
}

// ParseColumnType reads one type in DDL form with the length of a string: char is the
// text that [CharVarcharKey] keeps, "" without one. The error is a *[SyntaxError].
func ParseColumnType(text string) (t Type, char string, err error) {
	p := &ddlParser{text: text}
	if t, char, err = p.typ(0); err != nil {
		return nil, "", err
	}
	if p.space(); p.pos < len(p.text) {
		return nil, "", p.fail("expected the end")
	}
	return t, char, nil
}
