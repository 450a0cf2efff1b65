package dropin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// The lock of all who write there: `steadyvm hook` takes the same.
	lockFile   = ".lock"
	newSuffix  = ".new"
	retryEvery = 10 * time.Millisecond
)

// Directory is an opened directory, in which nobody else writes until it is closed.
type Directory struct {
	path string
	lock *os.File
}

// Lock opens the directory, which is made if it is not there, and waits for its lock until the context ends. What was
// written half is removed: who was killed at it asks again.
func Lock(ctx context.Context, path string) (*Directory, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	about, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !about.IsDir() || about.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s is no directory that root alone may write (%s): give it to root, with mode 755", path, about.Mode())
	}
	flags := os.O_CREATE | os.O_WRONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	lock, err := os.OpenFile(filepath.Join(path, lockFile), flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, lock); err != nil {
		return nil, errors.Join(fmt.Errorf("%s/%s is held by another, such as a hook: %w", path, lockFile, err), lock.Close())
	}
	directory := &Directory{path: path, lock: lock}
	if err := directory.removeTorn(); err != nil {
		return nil, errors.Join(err, directory.Close())
	}
	return directory, nil
}

func wait(ctx context.Context, lock *os.File) error {
	ticker := time.NewTicker(retryEvery)
	defer ticker.Stop()
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Close lets others write.
func (d *Directory) Close() error { return d.lock.Close() }

func (d *Directory) removeTorn() error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), newSuffix) {
			if err := d.Remove(entry.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Replace writes a file whole or not at all. It is asked about before it counts; what refuses it leaves the old one.
func (d *Directory) Replace(name, text string, ask func(file string) error) error {
	path := filepath.Join(d.path, name)
	pending := path + newSuffix
	flags := os.O_CREATE | os.O_EXCL | os.O_WRONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	written, err := os.OpenFile(pending, flags, 0o644)
	if err != nil {
		return err
	}
	_, err = written.WriteString(text)
	if err = errors.Join(err, written.Close()); err == nil {
		if err = ask(pending); err == nil {
			err = os.Rename(pending, path)
		}
	}
	if err != nil {
		return errors.Join(err, d.Remove(name+newSuffix))
	}
	return nil
}

// Read gives a file's text; "" if it is not there.
func (d *Directory) Read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(d.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// Remove removes a file, which need not be there.
func (d *Directory) Remove(name string) error {
	err := os.Remove(filepath.Join(d.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Files are the claims' files in a directory, in the order of their names.
func Files(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if IsOurFile(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}
