package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
)

// stdioServer answers each line as fast as a program can: what its era begins
// with as it should, any other request with an echo of its params, and a
// request that asks for notes with so many progress notifications first.
func stdioServer(r io.Reader, w io.Writer, f messageForm) error {
	in := bufio.NewReaderSize(r, 1<<20)
	out := bufio.NewWriterSize(w, 1<<16)
	var long []byte
	for {
		line, err := in.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			long = append(long[:0], line...)
			for err == bufio.ErrBufferFull {
				line, err = in.ReadSlice('\n')
				long = append(long, line...)
			}
			line = long
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		respond(out, line, f)
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// respond writes to out what answers one line: with an echo of its params, after the notes that it
// asks for, or as greetingReply says; nothing answers a notification. It relies on how the benchmark's
// client spells its messages: {"jsonrpc":"2.0","id":N,"method":"...","params":{...}}
func respond(out *bufio.Writer, line []byte, f messageForm) {
	const before = `{"jsonrpc":"2.0","id":`
	if !bytes.HasPrefix(line, []byte(before)) {
		return // a notification
	}
	id, rest, _ := bytes.Cut(line[len(before):], []byte{','})
	method, _, _ := bytes.Cut(rest, []byte{','})
	if reply := greetingReply(string(method), f); reply != "" {
		fmt.Fprintf(out, "%s%s,%s}\n", before, id, reply)
		return
	}
	_, params, _ := bytes.Cut(rest, []byte(`"params":{`))
	params = bytes.TrimRight(params, "\r\n")
	if count, ok := notesWanted(line); ok {
		token := tokenOf(line)
		var note []byte
		for i := range count {
			note = append(note[:0], `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`...)
			note = append(note, token...)
			note = append(note, `,"progress":`...)
			note = strconv.AppendInt(note, int64(i), 10)
			note = append(note, "}}\n"...)
			out.Write(note)
		}
	}
	out.WriteString(before)
	out.Write(id)
	out.WriteString(`,"result":{`)
	if f == modern {
		out.WriteString(`"resultType":"complete",`)
	}
	out.Write(params) // the request's end is the response's
	out.WriteByte('\n')
}

// greetingReply returns the member (result or error) with which a server of one era answers
// a request by which clients get to know it; method is the member of that request. "": it is
// another request.
func greetingReply(method string, f messageForm) string {
	switch {
	case method == `"method":"initialize"` && f == legacy:
		return `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`
	case method == `"method":"server/discover"` && f == modern:
		return `"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	case method == `"method":"initialize"`, method == `"method":"server/discover"`:
		return `"error":{"code":-32601,"message":"Method not found"}`
	case method == `"method":"tools/list"`:
		return `"result":{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`
	}
	return ""
}

// tokenOf returns the progress token of a request, as it is spelled; "t" in quotes if there is none.
func tokenOf(line []byte) []byte {
	_, token, _ := bytes.Cut(line, []byte(`"progressToken":`))
	if end := bytes.IndexAny(token, ",}"); end >= 0 {
		return token[:end]
	}
	return []byte(`"t"`)
}

// httpServer is the bare HTTP server. It tells its address, and ends with its stdin.
func httpServer(stdin io.Reader, stdout io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		os.Exit(0)
	}()
	return http.Serve(l, http.HandlerFunc(answerBare))
}

// answerBare is the floor of HTTP: it answers the bytes it was sent, and a
// call that asks for notes with as many events.
func answerBare(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return
	}
	if n, ok := notesWanted(body); ok {
		w.Header().Set("Content-Type", "text/event-stream")
		buf := bufio.NewWriterSize(w, 16<<10)
		for i := range n {
			fmt.Fprintf(buf, "id: 1_%d\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"t\",\"progress\":%d}}\n\n", i, i)
		}
		buf.Flush()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

// notesWanted returns how many notes a request asks for (see requestNotes); false: it asks for none.
func notesWanted(text []byte) (n int, ok bool) {
	_, digits, ok := bytes.Cut(text[max(0, len(text)-40):], []byte(`"notes":`))
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(string(bytes.TrimRight(digits, "}\n")))
	return n, err == nil
}
