// Package node is the driver on a node: it offers what the host has to sell, and describes pods' VMs to the host.
//
// Its state is the files in /run/steadyvm.d, and nothing else: a driver that starts anew finds there what it did, and
// after a reboot, which clears them, kubelet prepares all claims again. What is put in force of a file, and when, is
// `steadyvm watch`'s.
package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"steadyvm/k8s/internal/cgroup"
	"steadyvm/k8s/internal/devices"
	"steadyvm/k8s/internal/dropin"
	"steadyvm/k8s/internal/engine"
	"steadyvm/k8s/internal/reservation"
)

// Longest that one call waits for the directory's lock.
const lockPatience = 20 * time.Second

// Engine answers what claims need and what this host holds.
type Engine interface {
	reservation.Planner
	Capacity(ctx context.Context) (engine.Capacity, error)
	Admit(ctx context.Context, file string) error
}

// Driver is the driver of one node.
type Driver struct {
	// Node is the node's name, and that of its pool.
	Node string
	// Directory has the files that describe VMs.
	Directory string
	// Cgroups is where the host's cgroups are.
	Cgroups string
	Engine  Engine
	Client  kubernetes.Interface
	Metrics *Metrics
	// Stop ends the driver: kubelet or its supervisor starts it anew.
	Stop context.CancelCauseFunc

	offered atomic.Pointer[[]resourceapi.Device]
}

var _ kubeletplugin.DRAPlugin = &Driver{}

// PrepareResourceClaims describes the VM of each claim to the host, if the host holds it.
func (d *Driver) PrepareResourceClaims(
	ctx context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		began := time.Now()
		prepared, err := d.prepare(ctx, claim)
		d.Metrics.prepared(err, time.Since(began))
		if err != nil {
			err = fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: prepared, Err: err}
	}
	return results, nil
}

func (d *Driver) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	pod, err := consumer(claim)
	if err != nil {
		return nil, err
	}
	asked, err := d.ask(claim)
	if err != nil {
		return nil, err
	}
	own := nameOf(claim)
	vcpus := int64(len(asked.results))
	need, err := asked.reservation.Need(ctx, d.Engine, own.VM(), vcpus)
	if err != nil {
		return nil, err
	}
	if need.Ppm > asked.leastPpm {
		return nil, fmt.Errorf("it consumes %d millionths of a CPU, and its reservation needs %d: "+
			"request %s %d, or let the webhook write it", asked.leastPpm, need.Ppm, reservation.Capacity, need.Ppm)
	}
	place := dropin.Place{CPUs: asked.cpus}
	if place.Cgroup, err = cgroup.OfPod(d.Cgroups, string(pod)); err != nil {
		return nil, err
	}
	if asked.reservation.Threads != nil {
		place.Threads = *asked.reservation.Threads
	}
	text, err := dropin.Text(own, asked.reservation.VM(own.VM(), vcpus), place)
	if err != nil {
		return nil, err
	}
	if err := d.describe(ctx, own, text); err != nil {
		return nil, err
	}
	return asked.devices(), nil
}

func (d *Driver) describe(ctx context.Context, claim dropin.Claim, text string) error {
	return d.locked(ctx, func(directory *dropin.Directory) error {
		now, err := directory.Read(claim.File())
		if err != nil || now == text {
			return err
		}
		// What kubelet asks to prepare does not run: an older file of it would count against itself.
		if err := directory.Remove(claim.File()); err != nil {
			return err
		}
		return directory.Replace(claim.File(), text, func(file string) error { return d.Engine.Admit(ctx, file) })
	})
}

func (d *Driver) locked(ctx context.Context, do func(*dropin.Directory) error) error {
	waits, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	directory, err := dropin.Lock(waits, d.Directory)
	if err != nil {
		return err
	}
	return errors.Join(do(directory), directory.Close())
}

// UnprepareResourceClaims forgets the VMs of claims.
func (d *Driver) UnprepareResourceClaims(
	ctx context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		own := dropin.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
		results[claim.UID] = d.locked(ctx, func(directory *dropin.Directory) error { return directory.Remove(own.File()) })
	}
	return results, nil
}

// HandleError tells what went wrong while slices were published, and ends the driver where that does not mend itself.
func (d *Driver) HandleError(ctx context.Context, err error, message string) {
	klog.FromContext(ctx).Error(err, message)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.Stop(fmt.Errorf("%s: %w", message, err))
	}
}

// WatchHealthStatus is not supported: a CPU has no health of its own here.
func (d *Driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// Forget removes the files of claims that are gone: their deletion may have been forced while the node was away.
func (d *Driver) Forget(ctx context.Context) error {
	files, err := dropin.Files(d.Directory)
	if err != nil || len(files) == 0 {
		return err
	}
	return d.locked(ctx, func(directory *dropin.Directory) error {
		var failed []error
		for _, file := range files {
			text, err := directory.Read(file)
			if err != nil || text == "" {
				failed = append(failed, err)
				continue
			}
			if lives, err := d.lives(ctx, text); err != nil || lives {
				failed = append(failed, err)
				continue
			}
			klog.FromContext(ctx).Info("Its claim is gone", "file", filepath.Join(d.Directory, file))
			failed = append(failed, directory.Remove(file))
		}
		return errors.Join(failed...)
	})
}

func (d *Driver) lives(ctx context.Context, text string) (bool, error) {
	read, err := dropin.Read(text)
	if err != nil {
		// A file that is damaged describes nothing: kubelet asks for it anew.
		return false, nil
	}
	claim, err := d.Client.ResourceV1().ResourceClaims(read.Namespace).Get(ctx, read.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return string(claim.UID) == read.UID && claim.Status.Allocation != nil, nil
}

func nameOf(claim *resourceapi.ResourceClaim) dropin.Claim {
	return dropin.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
}

// consumer is the pod that a claim is reserved for. A budget is one VM's, so a claim of several is refused.
func consumer(claim *resourceapi.ResourceClaim) (types.UID, error) {
	var pods []types.UID
	for _, reference := range claim.Status.ReservedFor {
		if reference.APIGroup == corev1.GroupName && reference.Resource == "pods" {
			pods = append(pods, reference.UID)
		}
	}
	if len(pods) != 1 {
		return "", fmt.Errorf("it is reserved for %d pods, and a budget is one pod's: give each pod a claim of its own "+
			"(resourceClaimTemplateName)", len(pods))
	}
	return pods[0], nil
}

// asked is what a claim has of this node.
type asked struct {
	results     []resourceapi.DeviceRequestAllocationResult
	reservation reservation.Reservation
	// cpus has that of each result.
	cpus     []int
	leastPpm int64
}

func (a asked) devices() []kubeletplugin.Device {
	var all []kubeletplugin.Device
	for _, result := range a.results {
		all = append(all, kubeletplugin.Device{
			Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device, ShareID: result.ShareID,
		})
	}
	return all
}

func (d *Driver) ask(claim *resourceapi.ResourceClaim) (asked, error) {
	var found asked
	allocation := claim.Status.Allocation.Devices
	for _, result := range allocation.Results {
		if result.Driver != reservation.Driver || result.Pool != d.Node {
			continue
		}
		cpu, err := devices.CPU(result.Device)
		if err != nil {
			return found, err
		}
		found.cpus = append(found.cpus, cpu)
		consumed := result.ConsumedCapacity[reservation.Capacity]
		if ppm := consumed.Value(); len(found.results) == 0 || ppm < found.leastPpm {
			found.leastPpm = ppm
		}
		if len(found.results) > 0 && found.results[0].Request != result.Request {
			return found, fmt.Errorf("requests %q and %q are both for CPUs of %s: a claim describes one VM, in one request with a count",
				found.results[0].Request, result.Request, reservation.Driver)
		}
		found.results = append(found.results, result)
	}
	if len(found.results) == 0 {
		return found, fmt.Errorf("nothing of node %s is allocated to it", d.Node)
	}
	// Of several the last counts: a claim's own come after its class's.
	var parameters []byte
	for _, config := range allocation.Config {
		isFor := reservation.Applies(config.Requests, found.results[0].Request)
		if config.Opaque != nil && config.Opaque.Driver == reservation.Driver && isFor {
			parameters = config.Opaque.Parameters.Raw
		}
	}
	if parameters == nil {
		return found, fmt.Errorf("it has no parameters for %s: say a budget and a period, or tasks", reservation.Driver)
	}
	var err error
	found.reservation, err = reservation.Parse(parameters)
	return found, err
}
