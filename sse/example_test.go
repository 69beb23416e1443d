package sse_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/sse"
)

// A Writer is the reply of a server. It cuts off a client that takes nothing for a while.
func ExampleWriter() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stream := sse.NewWriter(w, 30*time.Second)
		stream.Begin()
		for i := range 2 {
			stream.Event(sse.Event{ID: fmt.Sprint(i), Data: []byte("news")})
		}
		if err := stream.Flush(); err != nil {
			log.Print(err) // the client is gone
		}
	}))
	defer server.Close()

	reply, err := http.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer reply.Body.Close()
	_, _ = io.Copy(os.Stdout, reply.Body)
	// Output:
	// id: 0
	// data: news
	//
	// id: 1
	// data: news
}

// A Reader returns the events of a stream, and says where to resume it.
func ExampleReader() {
	stream := strings.NewReader(": a comment\n\nid: 4\ndata: one\ndata: event\n\nevent: end\ndata: bye\n\n")
	events := sse.NewReader(stream, 1<<20)
	for {
		event, err := events.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q %q\n", event.Name, event.Data)
	}
	fmt.Println("resume after", events.LastEventID())
	// Output:
	// "" "one\nevent"
	// "end" "bye"
	// resume after 4
}
