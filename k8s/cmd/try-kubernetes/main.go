// Command try-kubernetes runs a control plane on loopback, and tries the driver on it. tools/kubernetes calls it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"steadyvm/k8s/internal/trial"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "kubernetes: %v\n", err)
		if errors.Is(err, errFailed) {
			os.Exit(1)
		}
		os.Exit(3)
	}
}

const (
	shortLease = 3 * time.Second
	longLease  = 30 * time.Second
)

// errFailed is a check that does not hold.
var errFailed = errors.New("a check failed")

type options struct {
	cluster           trial.Cluster
	release, revision string
	out, scaleOut     string
	paperOut          string
	extent            trial.Extent
	load              trial.Load
}

func run(ctx context.Context, words []string) error {
	if len(words) == 0 {
		return errors.New("say serve, down, run, scale, paper or page")
	}
	var chosen options
	set := flag.NewFlagSet("kubernetes "+words[0], flag.ContinueOnError)
	set.StringVar(&chosen.cluster.Programs, "programs", "", "the control plane's programs")
	set.StringVar(&chosen.cluster.Driver, "driver", "", "the program dra-driver-steadyvm")
	set.StringVar(&chosen.cluster.Steadyvm, "steadyvm", "", "the program steadyvm")
	set.StringVar(&chosen.cluster.Place, "place", "", "directory that is emptied, and has all that is written")
	set.StringVar(&chosen.cluster.Logs, "logs", "", "directory of logs, which stay")
	set.StringVar(&chosen.cluster.Source, "source", "", "the directory k8s of the repository")
	set.StringVar(&chosen.release, "release", "", "of Kubernetes, for the record")
	set.StringVar(&chosen.revision, "revision", "", "of the repository, for the record")
	set.StringVar(&chosen.out, "out", "", "where the record is written, or read from")
	set.StringVar(&chosen.scaleOut, "scale-out", "", "the same of scale")
	set.StringVar(&chosen.paperOut, "paper-out", "", "the same of paper")
	set.IntVar(&chosen.load.Nodes, "nodes", 1000, "of scale")
	set.IntVar(&chosen.load.CPUs, "cpus", 4, "that each node of scale offers")
	set.IntVar(&chosen.load.Claims, "claims", 1000, "of scale")
	set.DurationVar(&chosen.load.Longest, "longest", 15*time.Minute, "of scale: no more claims are waited for after it, and the page says how many it were")
	set.IntVar(&chosen.load.PercentOfNodes, "percent-of-nodes", 0, "of scale: percentageOfNodesToScore of kube-scheduler; 0: its own choice")
	set.IntVar(&chosen.extent.Rounds, "rounds", 20, "races of 20 claims for 10 places, in which something dies or nothing")
	set.IntVar(&chosen.extent.Turns, "turns", 10, "such races in which nothing dies, and the two kube-schedulers lead in turn")
	set.IntVar(&chosen.extent.Waits, "waits", 50, "pods whose wait for a place is measured, with a claim and without")
	if err := set.Parse(words[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	say := func(text string) { fmt.Fprintln(os.Stderr, "kubernetes: "+text) }
	switch words[0] {
	case "serve":
		chosen.cluster.Lease = longLease
		return chosen.serve(ctx, say)
	case "down":
		return trial.Down(chosen.cluster.Place)
	case "run":
		chosen.cluster.Lease = shortLease
		return chosen.try(ctx, say)
	case "scale":
		chosen.cluster.Lease = longLease
		return chosen.scale(ctx, say)
	case "paper":
		chosen.cluster.Lease = longLease
		return chosen.paper(ctx, say)
	case "page":
		return chosen.page()
	default:
		return fmt.Errorf("%q is none of serve, down, run, scale, paper and page", words[0])
	}
}

// serve keeps a cluster up until it is told to end it.
func (o *options) serve(ctx context.Context, say func(string)) error {
	held, err := trial.Hold(o.cluster.Place)
	if err != nil {
		return err
	}
	defer held.Close()
	if err := o.cluster.Up(ctx); err != nil {
		return errors.Join(err, o.cluster.Down())
	}
	if err := o.cluster.Install(ctx); err != nil {
		return errors.Join(err, o.cluster.Down())
	}
	say("it is up; export KUBECONFIG=" + o.cluster.Kubeconfig())
	// Who waits for it sees the end of its words.
	fmt.Println("up")
	if err := os.Stdout.Close(); err != nil {
		return err
	}
	<-ctx.Done()
	return o.cluster.Down()
}

// within has a cluster of its own up while it does something.
func (o *options) within(ctx context.Context, say func(string), do func(upSeconds float64) error) (err error) {
	held, err := trial.Hold(o.cluster.Place)
	if err != nil {
		return err
	}
	defer held.Close()
	began := time.Now()
	defer func() { err = errors.Join(err, o.cluster.Down()) }()
	if err := o.cluster.Up(ctx); err != nil {
		return err
	}
	upSeconds := time.Since(began).Seconds()
	say(fmt.Sprintf("it is up after %.0f s", upSeconds))
	return do(upSeconds)
}

func (o *options) try(ctx context.Context, say func(string)) error {
	return o.within(ctx, say, func(upSeconds float64) error {
		began := time.Now().UTC()
		record, err := o.cluster.Run(ctx, o.extent, say)
		if err != nil {
			return err
		}
		record.Release, record.Revision, record.When, record.UpSecs = o.release, o.revision, began, upSeconds
		if err := write(o.out, record); err != nil {
			return err
		}
		if failed := record.Failed(); failed > 0 {
			return fmt.Errorf("%w: %d of %d", errFailed, failed, len(record.Checks)+len(record.Rounds))
		}
		return nil
	})
}

func (o *options) scale(ctx context.Context, say func(string)) error {
	o.cluster.PercentOfNodes = o.load.PercentOfNodes
	return o.within(ctx, say, func(float64) error {
		began := time.Now().UTC()
		scale, err := o.cluster.Scale(ctx, o.load, o.extent.Waits, say)
		if err != nil {
			return err
		}
		scale.Release, scale.Revision, scale.When = o.release, o.revision, began
		return write(o.scaleOut, scale)
	})
}

func (o *options) paper(ctx context.Context, say func(string)) error {
	return o.within(ctx, say, func(float64) error {
		began := time.Now().UTC()
		paper, err := o.cluster.Paper(ctx, say)
		if err != nil {
			return err
		}
		paper.Release, paper.Revision, paper.When = o.release, o.revision, began
		return write(o.paperOut, paper)
	})
}

func write(path string, record any) error {
	text, err := json.MarshalIndent(record, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// page prints what crates/report makes a page of.
func (o *options) page() error {
	text, err := os.ReadFile(o.out)
	if err != nil {
		return fmt.Errorf("%w; tools/kubernetes run writes it", err)
	}
	var record trial.Record
	if err := json.Unmarshal(text, &record); err != nil {
		return err
	}
	scale, err := kept[trial.Scale](o.scaleOut)
	if err != nil {
		return err
	}
	paper, err := kept[trial.Paper](o.paperOut)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(record.Page(scale, paper))
}

// kept is a record of a file; none without the file.
func kept[T any](path string) (*T, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	record := new(T)
	return record, json.Unmarshal(text, record)
}
