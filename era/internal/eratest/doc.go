// Package eratest is what the tests of the two filters between the eras share.
package eratest
