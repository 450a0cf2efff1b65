package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	endPatience = 20 * time.Second
	tailLines   = 12
)

// process is one that ends with this program, whatever ends that.
type process struct {
	name    string
	command *exec.Cmd
	logPath string
	ended   chan struct{}
	code    error
}

// The kernel's word that a parent has died means the thread that started the child, so all are started on one that stays.
var starts = func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range work {
			do()
		}
	}()
	return work
}()

func start(logs, name, program string, arguments ...string) (*process, error) {
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(logs, name+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(program, arguments...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	starts <- func() { started <- command.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	own := &process{name: name, command: command, logPath: path, ended: make(chan struct{})}
	go func() {
		own.code = command.Wait()
		close(own.ended)
	}()
	return own, nil
}

// stop lets it end.
func (p *process) stop() error {
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(endPatience):
		return p.kill()
	}
}

// kill ends it as a crash would.
func (p *process) kill() error {
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// until asks until the answer is yes. A process that ends before is an error with the end of its log.
func (p *process) until(ctx context.Context, what string, ask func(context.Context) error) error {
	return until(ctx, p.name+" "+what, func(ctx context.Context) error {
		select {
		case <-p.ended:
			return &endedError{fmt.Errorf("%s has ended (%w); its last words:\n%s", p.name, p.code, p.tail())}
		default:
			return ask(ctx)
		}
	})
}

type endedError struct{ error }

func (p *process) tail() string {
	text, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

const (
	askEvery    = 50 * time.Millisecond
	askPatience = 3 * time.Minute
)

// until asks again and again what has no event to wait for, until the answer is yes.
func until(ctx context.Context, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if dead := new(endedError); errors.As(err, &dead) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %w", what, askPatience, err)
		case <-ticker.C:
		}
	}
}
