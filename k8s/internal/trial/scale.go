package trial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"steadyvm/k8s/internal/devices"
	"steadyvm/k8s/internal/dropin"
	"steadyvm/k8s/internal/reservation"
)

// How many requests of the client are under way at once.
const inFlight = 20

// Load is what a cluster is filled with.
type Load struct {
	Nodes int `json:"nodes"`
	// CPUs are those that each node offers.
	CPUs   int `json:"cpus"`
	Claims int `json:"claims"`
	// Longest ends a filling that takes longer.
	Longest time.Duration `json:"longest"`
	// PercentOfNodes is that of the cluster.
	PercentOfNodes int `json:"percent_of_nodes"`
}

// Scale is what many nodes and claims cost.
type Scale struct {
	Load
	Release  string    `json:"release"`
	Revision string    `json:"revision"`
	When     time.Time `json:"when"`
	// Filled with claims, and before that without.
	With, Without Filling
	// Then one pod at a time, in milliseconds.
	WithClaimMs, WithoutMs []float64
	MostPpm                int64 `json:"most_ppm"`
}

// Scale makes many nodes, and so many claims. The policies stand; the amount is in the template, so no webhook is asked.
func (c *Cluster) Scale(ctx context.Context, load Load, waits int, say func(string)) (scale Scale, err error) {
	scale.Load = load
	if err := c.offers(ctx, load); err != nil {
		return scale, err
	}
	say(fmt.Sprintf("%d nodes offer %d CPUs each", load.Nodes, load.CPUs))
	if err := c.makeTemplate(ctx, "race", budget(budgetUs, periodUs), 180_000); err != nil {
		return scale, err
	}
	if scale.Without, err = c.fill(ctx, "plain", "", load, say); err != nil {
		return scale, err
	}
	if err := c.clear(ctx); err != nil {
		return scale, err
	}
	if scale.With, err = c.fill(ctx, "fill", "race", load, say); err != nil {
		return scale, err
	}
	if _, scale.MostPpm, err = c.sold(ctx); err != nil {
		return scale, err
	}
	var record Record
	if err := c.waits(ctx, waits, &record, say); err != nil {
		return scale, err
	}
	scale.WithClaimMs, scale.WithoutMs = record.WithClaimMs, record.WithoutMs
	return scale, nil
}

// offers makes the nodes, each with as much of each CPU as this host gives.
func (c *Cluster) offers(ctx context.Context, load Load) error {
	first, err := c.newNode(ctx, "host0", hostFile)
	if err != nil {
		return err
	}
	if err := c.Install(ctx); err != nil {
		return err
	}
	capacity, err := first.engine().Capacity(ctx)
	if err != nil {
		return err
	}
	capacity.CPUs = nil
	for cpu := range load.CPUs {
		capacity.CPUs = append(capacity.CPUs, cpu)
	}
	offered, err := devices.Of(capacity, dropin.IsOurs)
	if err != nil {
		return err
	}
	return inParallel(load.Nodes, func(number int) error {
		name := fmt.Sprintf("host%d", number)
		if number > 0 {
			if _, err := c.newNode(ctx, name, hostFile); err != nil {
				return err
			}
		}
		return c.offer(ctx, name, offered)
	})
}

// offer publishes a node's devices in the driver's stead: so many drivers are too many processes.
func (c *Cluster) offer(ctx context.Context, node string, offered []resourceapi.Device) error {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: reservation.Driver, NodeName: &node, Devices: offered,
			Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	_, err := c.admin.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
	return err
}

// How many pods are listed at once, to be deleted.
const atATime = 500

// clear deletes all pods of the trial, which have no claims. One that stays is an error. Ten thousand are too many for one request.
func (c *Cluster) clear(ctx context.Context) error {
	now := int64(0)
	pods, first := c.admin.CoreV1().Pods(tenant), ""
	for {
		ours := metav1.ListOptions{LabelSelector: "trial=race", Limit: atATime}
		list, err := pods.List(ctx, ours)
		if err != nil || len(list.Items) == 0 {
			return err
		}
		if list.Items[0].Name == first {
			return fmt.Errorf("pod %s is deleted, and stays", first)
		}
		first = list.Items[0].Name
		err = inParallel(len(list.Items), func(number int) error {
			err := pods.Delete(ctx, list.Items[number].Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}

// inParallel does something so many times, some at once, and stops at the first error of each hand.
func inParallel(count int, do func(number int) error) error {
	numbers := make(chan int)
	failed := make([]error, inFlight)
	var hands sync.WaitGroup
	for hand := range inFlight {
		hands.Go(func() {
			for number := range numbers {
				if failed[hand] == nil {
					failed[hand] = do(number)
				}
			}
		})
	}
	for number := range count {
		numbers <- number
	}
	close(numbers)
	hands.Wait()
	return errors.Join(failed...)
}

func (s *Scale) table() []string {
	if s == nil {
		return nil
	}
	row := func(name string, filling Filling, waits []float64) string {
		return fmt.Sprintf("| %s | %d | %.0f | %.1f | %.1f | %d | %.0f | %.0f |", name, filling.Placed, filling.Seconds,
			filling.rate(), filling.lastRate(), len(waits), median(waits), percentile(waits, 99))
	}
	command := fmt.Sprintf("tools/kubernetes scale --nodes %d --cpus %d --claims %d --longest %s --waits %d",
		s.Nodes, s.CPUs, s.Claims, s.Longest, len(s.WithClaimMs))
	if s.PercentOfNodes != 0 {
		command += fmt.Sprintf(" --percent-of-nodes %d", s.PercentOfNodes)
	}
	lines := []string{
		"", fmt.Sprintf("## %d nodes, %d claims", s.Nodes, s.With.Placed), "",
		fmt.Sprintf("Kubernetes %s at revision %s on %s. Nodes and their devices are objects, each of %d CPUs.",
			s.Release, s.Revision, s.When.Format("2006-01-02 15:04 UTC"), s.CPUs),
		fmt.Sprintf("At most %d pods wait for their nodes at once; then one at a time, beside the %d that hold claims. Pods without", underWay, s.With.Placed),
		"a claim are the stock scheduler's. The control plane, the client and other work share two CPUs.", "",
	}
	if s.With.Placed < s.Claims {
		lines = append(lines, fmt.Sprintf("%d claims were asked for. No more were made after %s.", s.Claims, s.Longest), "")
	}
	if s.PercentOfNodes != 0 {
		lines = append(lines, fmt.Sprintf("kube-scheduler stops to look once %d %% of the nodes have room, and not below 100 "+
			"(`percentageOfNodesToScore`).", s.PercentOfNodes), "")
	}
	return append(lines, "```sh", command, "```", "",
		"| pods | placed | seconds | pods in a second | of the last tenth | n | then one at a time, p50 ms | p99 ms |",
		"|---|---|---|---|---|---|---|---|",
		row("with a claim", s.With, s.WithClaimMs), row("without", s.Without, s.WithoutMs), "",
		fmt.Sprintf("The fullest CPU has given %d millionths away.", s.MostPpm))
}
