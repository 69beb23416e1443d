package stdio

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// pieces is a source that gives out data in pieces of the given sizes, over
// and over.
type pieces struct {
	data  []byte
	sizes []byte
	turn  int
	most  int // the most bytes kept by l at any time
}

func (p *pieces) fill(_ context.Context, l *lines) (int, error) {
	p.most = max(p.most, len(l.longChunks)*chunkSize+len(l.buf))
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	size := 1 << 20
	if len(p.sizes) > 0 {
		size = 1 + int(p.sizes[p.turn%len(p.sizes)])
		if size > 100 || len(p.data) > 10_000 { // on the scale of the buffers, too
			size *= 300
		}
		p.turn++
	}
	if size > 1<<16 && p.turn%3 == 1 {
		return 0, errInterrupted
	}
	to := l.freeSpace()
	if len(to) == 0 {
		panic("no space")
	}
	n := copy(to[:min(size, len(to))], p.data)
	p.data = p.data[n:]
	return n, nil
}

func (p *pieces) close() {}
func (p *pieces) wait()  {}

// FuzzLines compares with the obvious: cut the whole input at its line feeds.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), uint16(1), []byte{0}, uint32(100))
	f.Add([]byte(pong+"\n"), uint16(4000), []byte{3, 255, 0}, uint32(1<<20))
	f.Add([]byte("x\n"+strings.Repeat("y", 5000)), uint16(40), []byte{201, 7}, uint32(70_000))
	f.Add([]byte(strings.Repeat("z", 999)), uint16(200), []byte{230, 255}, uint32(100_000))
	f.Fuzz(func(t *testing.T, piece []byte, times uint16, sizes []byte, limit uint32) {
		if len(piece)*int(times) > 1<<18 || len(sizes) > 10 {
			return
		}
		data := bytes.Repeat(piece, int(times))
		testLines(t, data, sizes, int(limit%(1<<18))+1)
	})
}

func nextLine(t *testing.T, l *lines) (line, error) {
	err := l.await(t.Context())
	for err == errInterrupted {
		err = l.await(t.Context())
	}
	if err != nil {
		return line{}, err
	}
	return l.take()
}

func testLines(t *testing.T, data, sizes []byte, limit int) {
	t.Helper()
	want := bytes.Split(data, []byte("\n"))
	if len(want[len(want)-1]) == 0 {
		want = want[:len(want)-1]
	}
	src := &pieces{data: data, sizes: sizes}
	l := &lines{src: src, max: limit}
	for i, text := range want {
		ln, err := nextLine(t, l)
		switch {
		case err != nil:
			t.Fatalf("line %d: %v", i, err)
		case ln.size != len(text):
			t.Fatalf("line %d: size %d, want %d", i, ln.size, len(text))
		case ln.tooLong != (len(text) > limit):
			t.Fatalf("line %d of %d bytes: tooLong %v with limit %d", i, len(text), ln.tooLong, limit)
		case !ln.tooLong && !bytes.Equal(ln.text, text):
			t.Fatalf("line %d: %s, want %s", i, short(ln.text), short(text))
		case ln.owned && cap(ln.text) > len(ln.text):
			t.Fatalf("line %d: %d bytes keep %d in memory", i, len(ln.text), cap(ln.text))
		}
		if ln.tooLong {
			var find jsonrpc.IDFinder
			find.Write(text)
			if id, kind := find.Result(); id != ln.id || kind != ln.kind {
				t.Fatalf("line %d: found %v %v, want %v %v", i, ln.id, ln.kind, id, kind)
			}
		}
	}
	for range 2 {
		if _, err := nextLine(t, l); err != io.EOF {
			t.Fatalf("behind the last line: %v, want io.EOF", err)
		}
	}
	if len(l.buf) != 0 || len(l.longChunks) != 0 {
		t.Errorf("buffers kept after the end")
	}
	if most := limit + 3*chunkSize; src.most > most {
		t.Errorf("%d bytes kept with a limit of %d", src.most, limit)
	}
}

func short(b []byte) string { return fmt.Sprintf("%.60q (%d bytes)", b, len(b)) }

// The sizes around which the buffers change.
func TestLinesAtTheEdges(t *testing.T) {
	for _, edge := range []int{smallBufferSize, chunkSize / 2, chunkSize, 2 * chunkSize, 3 * chunkSize} {
		for size := edge - 2; size <= edge+2; size++ {
			long := strings.Repeat("x", size)
			for _, before := range []string{"", "y\n", strings.Repeat("y", chunkSize/2+1) + "\n"} {
				for _, sizes := range [][]byte{nil, {255}, {254, 10}} {
					data := []byte(before + long + "\nz\n" + long)
					testLines(t, data, sizes, 1<<20)
					testLines(t, data, sizes, size-1)
					testLines(t, data, sizes, size)
				}
			}
		}
	}
}

// J9: what is thrown away is not kept first.
func TestTooLongIsNotKept(t *testing.T) {
	data := []byte(strings.Repeat("x", 1<<20) + "\ny")
	testLines(t, data, nil, 1000)
	testLines(t, data, []byte{255, 10}, 1000)
}

// A line of 64 MiB that arrives in small pieces costs one allocation of its
// size, and time in proportion to it.
func TestHugeLine(t *testing.T) {
	frame := `{"jsonrpc":"2.0","id":1,"result":{"pad":""}}`
	text := strings.Replace(frame, `""`, `"`+strings.Repeat("x", defaultMaxMessageSize-len(frame))+`"`, 1)
	c := reading(t, smallPieces{strings.NewReader(text + "\n" + pong + "\n")}, io.Discard, Options{})
	for _, want := range []string{text, pong} {
		m, err := bridgetest.Recv(t.Context(), c)
		if err != nil || string(m.Bytes()) != want {
			t.Fatalf("received %s, %v; want the %d bytes that were sent", short(m.Bytes()), err, len(want))
		}
	}
}

// smallPieces reads at most 5000 bytes at a time.
type smallPieces struct{ io.Reader }

func (p smallPieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), 5000)]) }
