// Command dra-driver-steadyvm gives pods fractions of a CPU with a bound, by Kubernetes' dynamic resource allocation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
)

const usage = `dra-driver-steadyvm: fractions of a CPU with a bound, for pods of Kubernetes.

usage: dra-driver-steadyvm node [OPTIONS]      on each node: offers its CPUs to claims, and describes pods' VMs to the host
       dra-driver-steadyvm webhook [OPTIONS]   in the cluster: writes into claims what they take of a CPU, or refuses them

--help after a word has its options.
`

// errUse is wrong use, of which the reason was said.
var errUse = errors.New("wrong use")

func main() {
	// SIGTERM is how kubelet ends a pod: slices stay, since what was sold by them runs on.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:]); {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUse):
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "dra-driver-steadyvm: %v\n", err)
		os.Exit(3)
	}
}

func run(ctx context.Context, words []string) error {
	if len(words) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return errUse
	}
	switch words[0] {
	case "node":
		return node(ctx, words[1:])
	case "webhook":
		return serveWebhook(ctx, words[1:])
	case "help", "--help", "-h":
		fmt.Print(usage)
		return nil
	default:
		fmt.Fprint(os.Stderr, usage)
		return errUse
	}
}

// options reads a verb's options, with those of the log.
func options(verb string, words []string, define func(*flag.FlagSet)) error {
	set := flag.NewFlagSet("dra-driver-steadyvm "+verb, flag.ContinueOnError)
	klog.InitFlags(set)
	define(set)
	if err := set.Parse(words); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUse
	}
	if set.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "dra-driver-steadyvm %s: %q is no option; --help lists them\n", verb, set.Arg(0))
		return errUse
	}
	return nil
}
