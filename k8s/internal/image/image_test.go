package image_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"steadyvm/k8s/internal/image"
)

// programs are two static ones of the names that the image has.
func programs(t *testing.T) (driver, steadyvm string) {
	t.Helper()
	directory := t.TempDir()
	source := filepath.Join(directory, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	driver, steadyvm = filepath.Join(directory, "dra-driver-steadyvm"), filepath.Join(directory, "steadyvm")
	for _, path := range []string{driver, steadyvm} {
		build := exec.Command("go", "build", "-o", path, source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
	return driver, steadyvm
}

func TestAnImageHasTheTwoProgramsAndIsTheSameEachTime(t *testing.T) {
	path, steadyvm := programs(t)
	first, err := image.Of(path, steadyvm)
	if err != nil {
		t.Fatal(err)
	}
	second, err := image.Of(path, steadyvm)
	if err != nil {
		t.Fatal(err)
	}
	one, errOne := first.Digest()
	two, errTwo := second.Digest()
	if one != two || errOne != nil || errTwo != nil {
		t.Errorf("%s, %s, %v, %v", one, two, errOne, errTwo)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := image.Write(first, "dra-driver-steadyvm:test", file); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("dra-driver-steadyvm:test")
	if err != nil {
		t.Fatal(err)
	}
	read, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := read.ConfigFile()
	if err != nil || config.Config.Entrypoint[0] != "/usr/bin/dra-driver-steadyvm" {
		t.Errorf("%+v, %v", config, err)
	}
	var names []string
	files := mutate.Extract(read)
	defer files.Close()
	for reader := tar.NewReader(files); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
	if expected := []string{"usr/bin/dra-driver-steadyvm", "usr/bin/steadyvm"}; !slices.Equal(names, expected) {
		t.Errorf("the image has %q", names)
	}
}

func TestWhatCannotStartInAnImageIsRefused(t *testing.T) {
	_, steadyvm := programs(t)
	for words, given := range map[string][]string{
		"which the image starts": {steadyvm},
		"build it static":        {"/bin/sh"},
		"read program":           {"/etc/passwd"},
	} {
		if _, err := image.Of(given...); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v: %v", given, err)
		}
	}
}
