package demo

import (
	"encoding/base64"
	"strconv"
)

// pageSize is small enough that the lists of tools and resources have two pages.
const pageSize = 12

func (srv *Server) pageSize() int {
	if srv.Conformance {
		return 1000
	}
	return pageSize
}

// page returns the part of all that params' cursor asks for, and the cursor of the next part.
func page[T any](params []byte, all []T, size int) (part []T, next string, err error) {
	var p struct {
		Cursor *string `json:"cursor"`
	}
	if err := decode(params, &p); err != nil {
		return nil, "", err
	}
	start := 0
	if p.Cursor != nil {
		if start, err = parseCursor(*p.Cursor); err != nil {
			return nil, "", err
		}
	}
	start = min(start, len(all)) // a list may have become shorter
	end := min(start+size, len(all))
	if end < len(all) {
		next = cursor(end)
	}
	return all[start:end], next, nil
}

// Cursors are opaque to clients; base64 keeps people from counting with them.
func cursor(start int) string {
	return base64.RawURLEncoding.EncodeToString([]byte("from " + strconv.Itoa(start)))
}

func parseCursor(c string) (int, error) {
	text, err := base64.RawURLEncoding.DecodeString(c)
	if err == nil && len(text) > 5 && string(text[:5]) == "from " {
		if n, err := strconv.Atoi(string(text[5:])); err == nil && n >= 0 {
			return n, nil
		}
	}
	return 0, invalidParams("cursor was not given out by this server")
}
