// Package real finds the program steadyvm for tests: they ask the real one.
package real

import (
	"os"
	"path/filepath"
	"testing"

	"steadyvm/k8s/internal/engine"
)

// Host gives the program, with the file of a host of two CPUs below a directory of its own.
func Host(t *testing.T) (program engine.Program, root string) {
	t.Helper()
	path := os.Getenv("STEADYVM")
	if path == "" {
		t.Fatal("$STEADYVM names no program steadyvm; tools/test-kubernetes builds one, and runs this")
	}
	root = t.TempDir()
	for _, directory := range []string{"etc", "run/steadyvm.d"} {
		if err := os.MkdirAll(filepath.Join(root, directory), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(root, "etc/steadyvm.toml")
	text := "[host]\ncpus = \"0-1\"\nscheduler = \"pedf\"\nenforce = \"deadline\"\n[class.gold]\nextends = \"rt\"\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return engine.Program{Path: path, File: file}, root
}
