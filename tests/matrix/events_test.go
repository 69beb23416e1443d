package matrix

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// event is one server-sent event.
type event struct {
	id, name, data string
	hasID, hasData bool
	hasRetry       bool
}

// events reads server-sent events. It takes no more than the bridge and the
// servers of this test write.
type events struct{ in *bufio.Reader }

func newEvents(r io.Reader) *events { return &events{bufio.NewReaderSize(r, 1<<16)} }

// next returns the next event; io.EOF only between events.
func (r *events) next() (event, error) {
	var e event
	begun := false
	for {
		line, err := r.in.ReadString('\n')
		switch {
		case err == io.EOF && line == "" && !begun:
			return e, io.EOF
		case err == io.EOF:
			return e, io.ErrUnexpectedEOF
		case err != nil:
			return e, err
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			if begun {
				return e, nil
			}
			continue
		}
		if strings.HasPrefix(line, ":") {
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		begun = true
		switch field {
		case "id":
			e.id, e.hasID = value, true
		case "event":
			e.name = value
		case "data":
			if e.hasData {
				return e, fmt.Errorf("an event with two lines of data")
			}
			e.data, e.hasData = value, true
		case "retry":
			e.hasRetry = true
		default:
			return e, fmt.Errorf("a stream with the line %q", clip(line))
		}
	}
}
