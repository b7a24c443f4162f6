package blobstore

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// RangeHeader is the Range header of a Get: n bytes from off on, or the last n
// for [Tail].
func RangeHeader(off int64, n int) string {
	if off == Tail {
		return fmt.Sprintf("bytes=-%d", n)
	}
	return fmt.Sprintf("bytes=%d-%d", off, off+int64(n)-1)
}

// ReadRange fills buf from the answer to a Get and gives the size of the whole
// object. A server that ignored the range sent everything: what comes before the
// range is skipped. The caller closes body.
func ReadRange(body io.Reader, buf []byte, off int64, contentRange string, contentLength int64) (n int, size int64, err error) {
	start := int64(0)
	if contentRange != "" {
		var last int64
		if _, err := fmt.Sscanf(contentRange, "bytes %d-%d", &start, &last); err != nil {
			return 0, 0, NoAnswer(fmt.Errorf("bad Content-Range %q", contentRange))
		}
		_, total, _ := strings.Cut(contentRange, "/")
		if size, err = strconv.ParseInt(total, 10, 64); err != nil {
			return 0, 0, NoAnswer(fmt.Errorf("bad Content-Range %q", contentRange))
		}
	} else if size = contentLength; size < 0 {
		return 0, 0, NoAnswer(fmt.Errorf("an answer without a length"))
	}
	if off == Tail {
		off = max(0, size-int64(len(buf)))
	}
	if off >= size {
		return 0, size, &Fault{Status: http.StatusRequestedRangeNotSatisfiable}
	}
	if start > off {
		return 0, 0, NoAnswer(fmt.Errorf("asked for bytes from %d, got those from %d", off, start))
	}
	if _, err := io.CopyN(io.Discard, body, off-start); err != nil {
		return 0, 0, NoAnswer(err)
	}
	n, err = io.ReadFull(body, buf[:min(int64(len(buf)), size-off)])
	if err != nil {
		return n, size, NoAnswer(err)
	}
	return n, size, nil
}
