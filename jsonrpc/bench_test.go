package jsonrpc

import (
	"strconv"
	"strings"
	"testing"
)

// benchCall is a tools/call of about size bytes, nearly all of them in one string.
func benchCall(size int, text string) []byte {
	const head = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"`
	const tail = `"}}}`
	n := max(0, size-len(head)-len(tail)) / len(text)
	return []byte(head + strings.Repeat(text, n) + tail)
}

// benchTools is a tools/list result of about size bytes: many short tokens.
func benchTools(size int) []byte {
	const tool = `{"name":"get_weather","title":"Weather","description":"Tells the weather of a city.","inputSchema":{"type":"object","properties":{"city":{"type":"string","maxLength":100}},"required":["city"]}}`
	n := size / len(tool)
	return []byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + strings.TrimSuffix(strings.Repeat(tool+",", n), ",") + `]}}`)
}

func BenchmarkParse(b *testing.B) {
	for _, size := range []int{100, 10_000, 1_000_000} {
		name := strconv.Itoa(size)
		b.Run("ascii/"+name, func(b *testing.B) { benchParse(b, benchCall(size, "x")) })
		b.Run("cjk/"+name, func(b *testing.B) { benchParse(b, benchCall(size, "語")) })
		b.Run("code/"+name, func(b *testing.B) { benchParse(b, benchCall(size, `\tif x == \"y\" {\n`)) })
		b.Run("tokens/"+name, func(b *testing.B) { benchParse(b, benchTools(size)) })
	}
}

func benchParse(b *testing.B, raw []byte) {
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		m, err := Parse(raw)
		if err != nil || m.Method() == "x" {
			b.Fatal(err)
		}
	}
}

func BenchmarkWithID(b *testing.B) {
	m, err := Parse(benchCall(100, "x"))
	if err != nil {
		b.Fatal(err)
	}
	id := IntID(123456)
	b.ReportAllocs()
	for b.Loop() {
		m.WithID(id)
	}
}

func BenchmarkLookup(b *testing.B) {
	m, err := Parse(benchCall(10_000, "x"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Lookup("params", "name")
	}
}

func BenchmarkIDFinder(b *testing.B) {
	for name, raw := range map[string][]byte{"string": benchCall(1_000_000, "x"), "tokens": benchTools(1_000_000)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				var f IDFinder
				f.Write(raw)
			}
		})
	}
}
