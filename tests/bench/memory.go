package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// measureMemory prints how much memory a bridge needs without sessions, and for sessions over each transport (Linux only).
func (b *bench) measureMemory() error {
	fmt.Println()
	for i, k := range kinds() {
		err := b.memoryOf(k, i == 0)
		if errors.Is(err, os.ErrNotExist) {
			fmt.Println("resident memory is measured on Linux only")
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// memoryOf prints how much memory sessions of a kind take in a bridge of their own; first: also how much that bridge takes without any.
func (b *bench) memoryOf(k kind, first bool) error {
	p, at, err := startBridge(b.binary, b.socket(), childArgs("stdio")...)
	if err != nil {
		return err
	}
	defer p.close()
	time.Sleep(restTime)
	empty, emptyData, err := residentBytes(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	sessions := make([]client, b.sessions)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for w := range errs {
		wg.Go(func() {
			for i := w; i < b.sessions && errs[w] == nil; i += len(errs) {
				sessions[i], errs[w] = k.open(at)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	full, fullData, err := residentBytes(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if first {
		fmt.Printf("%-34s %47.1f MiB\n", "serve: resident, no session", float64(empty)/(1<<20))
	}
	fmt.Printf("%-34s %47.1f MiB\n", fmt.Sprintf("%s, %d sessions", k.name, b.sessions), float64(full)/(1<<20))
	fmt.Printf("%-34s %47.1f KiB\n", k.name+", each", float64(fullData-emptyData)/float64(b.sessions)/1024)
	for _, s := range sessions {
		if err := s.close(); err != nil {
			return err
		}
	}
	return nil
}

// restTime is how long a bridge gets, after its start, to give back the memory that only starting has needed.
const restTime = time.Second

// residentBytes returns the resident set of a process in bytes (all), and how much of it is data: what is no part of a file, such as the
// executable.
func residentBytes(pid int) (all, data int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for _, field := range []struct {
		name string
		to   *int
	}{{"VmRSS:", &all}, {"RssAnon:", &data}} {
		_, rest, _ := strings.Cut(string(status), field.name)
		kb, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			return 0, 0, err
		}
		*field.to = kb << 10
	}
	return all, data, nil
}
