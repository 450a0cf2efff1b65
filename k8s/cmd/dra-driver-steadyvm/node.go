package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"steadyvm/k8s/internal/cgroup"
	"steadyvm/k8s/internal/engine"
	driver "steadyvm/k8s/internal/node"
	"steadyvm/k8s/internal/reservation"
)

type nodeOptions struct {
	kubeconfig, node, file, program, directory, cgroups, plugins, registry, listen string
	every                                                                          time.Duration
}

func (o *nodeOptions) define(set *flag.FlagSet) {
	set.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server; left out: as the pod that it is in")
	set.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "the node's name; left out: $NODE_NAME")
	set.StringVar(&o.file, "file", "/etc/steadyvm.toml", "the file that describes the host")
	set.StringVar(&o.program, "steadyvm", "steadyvm", "the program steadyvm of the same release")
	set.StringVar(&o.directory, "directory", "/run/steadyvm.d", "where VMs are described to the host")
	set.StringVar(&o.cgroups, "cgroups", cgroup.Root, "where the host's cgroups are")
	set.StringVar(&o.plugins, "plugins", kubeletplugin.KubeletPluginsDir, "kubelet's directory of plugins")
	set.StringVar(&o.registry, "registry", kubeletplugin.KubeletRegistryDir, "kubelet's directory of registrations")
	set.StringVar(&o.listen, "listen", "127.0.0.1:9184", "address of /healthz and /metrics; \"\": none")
	set.DurationVar(&o.every, "every", time.Minute, "how often the host is asked what it has to sell")
}

func node(ctx context.Context, words []string) error {
	var chosen nodeOptions
	if err := options("node", words, chosen.define); err != nil {
		return err
	}
	if chosen.node == "" {
		fmt.Fprintln(os.Stderr, "dra-driver-steadyvm node: no name of the node: give --node, or NODE_NAME by the downward API")
		return errUse
	}
	client, err := client(chosen.kubeconfig)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	metrics, err := driver.NewMetrics(registry, chosen.directory)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	own := &driver.Driver{
		Node: chosen.node, Directory: chosen.directory, Cgroups: chosen.cgroups,
		Engine: engine.Program{Path: chosen.program, File: chosen.file},
		Client: client, Metrics: metrics, Stop: stop,
	}
	if err := own.Forget(ctx); err != nil {
		return fmt.Errorf("look at the claims of %s: %w", chosen.directory, err)
	}
	data := filepath.Join(chosen.plugins, reservation.Driver)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, own,
		kubeletplugin.DriverName(reservation.Driver),
		kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(chosen.node),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RegistrarDirectoryPath(chosen.registry),
		kubeletplugin.HealthService(false),
	)
	if err != nil {
		return fmt.Errorf("start kubelet's plugin: %w", err)
	}
	defer helper.Stop()
	if chosen.listen != "" {
		served := serveHealth(ctx, chosen.listen, registry, own)
		// The last to end: it is asked while claims are still prepared.
		defer func() { <-served }()
	}
	own.Offer(ctx, helper, chosen.every)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func client(kubeconfig string) (kubernetes.Interface, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w; give --kubeconfig outside of a pod", err)
	}
	return kubernetes.NewForConfig(config)
}

// serveHealth serves until the context ends; the channel is closed then.
func serveHealth(ctx context.Context, address string, registry *prometheus.Registry, own *driver.Driver) <-chan struct{} {
	routes := http.NewServeMux()
	routes.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	routes.HandleFunc("/healthz", func(writer http.ResponseWriter, _ *http.Request) {
		if own.Offered() == nil {
			http.Error(writer, "the host has not said yet what it has to sell; the log has the reason", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(writer, "ok")
	})
	return serve(ctx, &http.Server{Addr: address, Handler: routes}, func(server *http.Server) error {
		return server.ListenAndServe()
	}, own.Stop)
}
