package storage

import (
	"fmt"
	"strings"
)

// ValidateKey fails with ErrInvalidKey unless key is a relative slash-separated
// path whose elements are not empty, "." or "..", without NUL, and of at most
// 1024 bytes (the limit of S3 and GCS).
func ValidateKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: empty", ErrInvalidKey)
	}
	if len(key) > 1024 {
		return fmt.Errorf("%w: longer than 1024 bytes", ErrInvalidKey)
	}
	return validateElements(key)
}

// validatePrefix is ValidateKey for a plain string prefix: what comes after the
// last slash may be anything, since it need not be a whole element.
func validatePrefix(prefix string) error {
	i := strings.LastIndexByte(prefix, '/')
	if strings.IndexByte(prefix, 0) >= 0 {
		return fmt.Errorf("%w: NUL in prefix %q", ErrInvalidKey, prefix)
	}
	if i < 0 {
		return nil
	}
	return validateElements(prefix[:i])
}

func validateElements(key string) error {
	if strings.IndexByte(key, 0) >= 0 {
		return fmt.Errorf("%w: NUL in %q", ErrInvalidKey, key)
	}
	for el := range strings.SplitSeq(key, "/") {
		switch el {
		case "":
			return fmt.Errorf("%w: empty element in %q", ErrInvalidKey, key)
		case ".", "..":
			return fmt.Errorf("%w: element %q in %q", ErrInvalidKey, el, key)
		}
	}
	return nil
}
