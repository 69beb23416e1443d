// Package traceview shows traces to people: it filters records, prints them in lines, says which
// message got lost and where, and exports a trace to other formats.
//
// What a record holds came over the wire, or from a file of somebody else. Nothing of it reaches a
// terminal or a browser as it is: see printable.Append.
package traceview
