// Package image makes the driver's container image of its two static programs: nothing else is in it, and no daemon makes it.
package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const (
	directory  = "usr/bin"
	entryPoint = "dra-driver-steadyvm"
)

// The same programs make the same image, byte for byte.
var epoch = time.Unix(0, 0).UTC()

// Of makes an image of programs; one of them is the driver.
func Of(programs ...string) (v1.Image, error) {
	layer, err := layer(programs)
	if err != nil {
		return nil, err
	}
	own, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "write-image"},
	})
	if err != nil {
		return nil, err
	}
	config, err := own.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = "amd64", "linux", v1.Time{Time: epoch}
	config.Config.Entrypoint = []string{"/" + directory + "/" + entryPoint}
	config.Config.Env = []string{"PATH=/" + directory}
	return mutate.ConfigFile(own, config)
}

func layer(programs []string) (v1.Layer, error) {
	var packed bytes.Buffer
	writer := tar.NewWriter(&packed)
	hasDriver := false
	for _, program := range programs {
		text, err := static(program)
		if err != nil {
			return nil, err
		}
		base := filepath.Base(program)
		hasDriver = hasDriver || base == entryPoint
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: directory + "/" + base, Mode: 0o755, Size: int64(len(text)), ModTime: epoch,
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(text); err != nil {
			return nil, err
		}
	}
	if !hasDriver {
		return nil, fmt.Errorf("none of %v is %s, which the image starts", programs, entryPoint)
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil })
}

// static reads a program that needs no other file: there is none in the image.
func static(path string) ([]byte, error) {
	program, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read program %s: %w", path, err)
	}
	defer program.Close()
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s needs a loader and libraries, which the image has not: build it static", path)
		}
	}
	return os.ReadFile(path)
}

// Write writes it as an archive that `ctr images import`, `podman load` and `docker load` take.
func Write(own v1.Image, called, file string) error {
	reference, err := name.NewTag(called)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, reference, own)
}
