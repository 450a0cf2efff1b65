package trial

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Hold takes a place for this program until the file is closed. The file has its number.
func Hold(place string) (*os.File, error) {
	file, err := os.OpenFile(place+".lock", os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is in use, by a cluster that is up: end it by tools/kubernetes down", place), file.Close())
	}
	if err := file.Truncate(0); err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(file, os.Getpid())
	return file, err
}

// Down tells the cluster of a place to end, and waits until it has.
func Down(place string) error {
	file, err := os.OpenFile(place+".lock", os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		// Nobody holds it.
		return nil
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	holder, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("%s.lock does not say who holds it: %w", place, err)
	}
	if err := syscall.Kill(holder, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end process %d: %w", holder, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- unix.Flock(int(file.Fd()), unix.LOCK_EX) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(2 * time.Minute):
		return fmt.Errorf("process %d has not ended within 2 minutes", holder)
	}
}
