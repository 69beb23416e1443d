package traceview

import (
	"slices"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// maxReorderedBytes is how long the lines that a reorderer holds back may be together, in bytes.
const maxReorderedBytes = 8 << 20

// reorderer puts records that stand near each other in a trace into the order of their numbers:
// what happens at the same time is written in any order, the record of a request perhaps after that of
// its answer.
type reorderer struct {
	maxItems int                                      // how many records are held back at most; 0: none, so they keep their order
	emit     func(r *trace.Record, line []byte) error // is called with the records in order
	items    []heldRecord                             // the records that are held back, in the order of their numbers
	bytes    int                                      // how long the lines of items are together
}

// heldRecord is a record, and its line in the trace.
type heldRecord struct {
	record trace.Record // the record, decoded
	line   []byte       // the line in the trace that has the record
}

// add takes the next record, and keeps line. While more are held back than may be, it emits the one with the lowest number. A
// record without a number (Seq 0) keeps its place: all that are held back are emitted, and then this one.
func (o *reorderer) add(r *trace.Record, line []byte) error {
	if r.Seq == 0 {
		if err := o.flush(); err != nil {
			return err
		}
		return o.emit(r, line)
	}
	at := len(o.items)
	for at > 0 && o.items[at-1].record.Seq > r.Seq {
		at--
	}
	o.items = slices.Insert(o.items, at, heldRecord{*r, line})
	o.bytes += len(line)
	for len(o.items) > o.maxItems || o.bytes > maxReorderedBytes {
		first := o.items[0]
		o.items = slices.Delete(o.items, 0, 1)
		o.bytes -= len(first.line)
		if err := o.emit(&first.record, first.line); err != nil {
			return err
		}
	}
	return nil
}

// flush emits all records that are held back.
func (o *reorderer) flush() error {
	for i := range o.items {
		if err := o.emit(&o.items[i].record, o.items[i].line); err != nil {
			return err
		}
	}
	clear(o.items)
	o.items, o.bytes = o.items[:0], 0
	return nil
}
