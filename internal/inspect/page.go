package inspect

import (
	"embed"
	"io/fs"
	"net/http"
)

// pageFiles are the files of the page for browsers, in the folder web.
//
//go:embed web
var pageFiles embed.FS

// pageHandler returns the Handler of the page's files, which anybody may read: the page asks the API for all that is secret, with the
// token that stands in the fragment of the page's URL.
func pageHandler() http.Handler {
	files, err := fs.Sub(pageFiles, "web")
	if err != nil {
		panic(err) // the folder is embedded
	}
	server := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		server.ServeHTTP(w, r)
	})
}
