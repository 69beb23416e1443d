// Package startpages takes the pages of the executable that only starting has needed out of memory. It imports little, because
// supervisor/internal/watchdogwait imports it.
package startpages
