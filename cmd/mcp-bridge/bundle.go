package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// bundle is the file that --bundle names: what belongs into a bug report, without secrets.
type bundle struct {
	file      *os.File // open for writing until write or discard closes it
	zip       bool     // the file is a .zip; false: a .tar.gz
	isWritten bool     // the file is complete and closed
}

// newBundle makes the file, which only its owner can read. It is an error if the file exists, or if its name does not end with .zip,
// .tar.gz or .tgz, which says how it is packed.
func newBundle(name string) (*bundle, error) {
	b := &bundle{zip: strings.HasSuffix(name, ".zip")}
	if !b.zip && !strings.HasSuffix(name, ".tar.gz") && !strings.HasSuffix(name, ".tgz") {
		return nil, errors.New("the name must end in .zip or .tar.gz")
	}
	var err error
	b.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return b, err
}

// discard closes and removes the file, unless write has completed it.
func (b *bundle) discard() {
	if !b.isWritten {
		_ = b.file.Close()
		_ = os.Remove(b.file.Name())
	}
}

// write writes the report, the versions, the names of environment variables, and recording (what doctor and the server said), and
// closes the file.
func (b *bundle) write(report *doctor.Report, variables []string, recording *doctor.Recording) error {
	var text, form bytes.Buffer
	if err := errors.Join(report.WriteText(&text), report.WriteJSON(&form)); err != nil {
		return err
	}
	conversation, err := report.FormatTrace(recording, "server")
	if err != nil {
		return err
	}
	err = b.pack([]bundledFile{
		{"report.txt", text.Bytes()},
		{"report.json", form.Bytes()},
		{"versions.txt", versions()},
		{"environment.txt", []byte(strings.Join(variables, "\n") + "\n")},
		{"trace.jsonl", conversation},
	})
	if err = errors.Join(err, b.file.Close()); err != nil {
		return fmt.Errorf("--bundle: %w", err)
	}
	b.isWritten = true
	return nil
}

// bundledFile is one file in a bundle.
type bundledFile struct {
	name string // its name in the bundle
	text []byte // what it contains
}

// pack writes files into the bundle, as .zip or .tar.gz. It does not close the bundle's file.
func (b *bundle) pack(files []bundledFile) error {
	now := time.Now()
	if b.zip {
		out := zip.NewWriter(b.file)
		for _, f := range files {
			w, err := out.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: now})
			if err == nil {
				_, err = w.Write(f.text)
			}
			if err != nil {
				return err
			}
		}
		return out.Close()
	}
	compressed := gzip.NewWriter(b.file)
	out := tar.NewWriter(compressed)
	for _, f := range files {
		err := out.WriteHeader(&tar.Header{Name: f.name, Mode: 0o600, Size: int64(len(f.text)), ModTime: now})
		if err == nil {
			_, err = io.Copy(out, bytes.NewReader(f.text))
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), compressed.Close())
}

// versions returns a text with the versions of this program, of Go and of all modules in it, and the system it runs on.
func versions() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "mcp-bridge %s\n%s %s/%s\n", buildinfo.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			fmt.Fprintf(&b, "%s %s\n", dep.Path, dep.Version)
		}
	}
	return b.Bytes()
}
