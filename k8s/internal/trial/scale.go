package trial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"steadyvm/k8s/internal/devices"
	"steadyvm/k8s/internal/dropin"
	"steadyvm/k8s/internal/reservation"
)

// How many requests of the client are under way at once.
const inFlight = 20

// Scale is what many nodes and claims cost.
type Scale struct {
	Release  string    `json:"release"`
	Revision string    `json:"revision"`
	When     time.Time `json:"when"`
	Nodes    int       `json:"nodes"`
	Claims   int       `json:"claims"`
	// Seconds until as many pods had their nodes, with claims and without.
	FillSeconds, FillSecondsWithout float64
	// Then one pod at a time, in milliseconds.
	WithClaimMs, WithoutMs []float64
	MostPpm                int64 `json:"most_ppm"`
}

// Scale makes many nodes, each with the devices of this host, and so many claims. The policies stand; the amount is in the
// template, so no webhook is asked.
func (c *Cluster) Scale(ctx context.Context, nodes, claims, waits int, say func(string)) (scale Scale, err error) {
	scale.Nodes, scale.Claims = nodes, claims
	first, err := c.newNode(ctx, "host0", hostFile)
	if err != nil {
		return scale, err
	}
	if err := c.Install(ctx); err != nil {
		return scale, err
	}
	capacity, err := first.engine().Capacity(ctx)
	if err != nil {
		return scale, err
	}
	offered, err := devices.Of(capacity, dropin.IsOurs)
	if err != nil {
		return scale, err
	}
	err = inParallel(nodes, func(number int) error {
		name := fmt.Sprintf("host%d", number)
		if number > 0 {
			if _, err := c.newNode(ctx, name, hostFile); err != nil {
				return err
			}
		}
		return c.offer(ctx, name, offered)
	})
	if err != nil {
		return scale, err
	}
	say(fmt.Sprintf("%d nodes offer their CPUs", nodes))
	spec, err := budget(budgetUs, periodUs).spec(180_000)
	if err != nil {
		return scale, err
	}
	template := &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "race"}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec},
	}
	if _, err := c.admin.ResourceV1().ResourceClaimTemplates(tenant).Create(ctx, template, metav1.CreateOptions{}); err != nil {
		return scale, err
	}
	if scale.FillSecondsWithout, err = c.fill(ctx, "plain", "", claims); err != nil {
		return scale, err
	}
	say(fmt.Sprintf("%d pods without claims have their nodes after %.0f s", claims, scale.FillSecondsWithout))
	if err := c.empty(ctx); err != nil {
		return scale, err
	}
	if scale.FillSeconds, err = c.fill(ctx, "fill", "race", claims); err != nil {
		return scale, err
	}
	say(fmt.Sprintf("%d pods with claims have their nodes after %.0f s", claims, scale.FillSeconds))
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

// fill makes pods, and gives the seconds until all have their nodes.
func (c *Cluster) fill(ctx context.Context, name, template string, count int) (float64, error) {
	began := time.Now()
	made := make(chan error, 1)
	go func() {
		made <- inParallel(count, func(number int) error { return c.pod(ctx, fmt.Sprintf("%s-%d", name, number), template) })
	}()
	placed := map[string]bool{}
	for len(placed) < count {
		if err := c.watchPlaced(ctx, made, placed, count); err != nil {
			return 0, fmt.Errorf("%d of %d pods have nodes: %w", len(placed), count, err)
		}
	}
	return time.Since(began).Seconds(), nil
}

// watchPlaced notes pods that get their nodes, until all have or the server ends the watch. A new one begins with all that are.
func (c *Cluster) watchPlaced(ctx context.Context, made <-chan error, placed map[string]bool, count int) error {
	news, err := c.admin.CoreV1().Pods(tenant).Watch(ctx, metav1.ListOptions{LabelSelector: "trial=race"})
	if err != nil {
		return err
	}
	defer news.Stop()
	for len(placed) < count {
		select {
		case event, isOpen := <-news.ResultChan():
			if !isOpen {
				return nil
			}
			if pod, isPod := event.Object.(*corev1.Pod); isPod && pod.Spec.NodeName != "" {
				placed[pod.Name] = true
			}
		case err := <-made:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
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
	row := func(name string, fill float64, waits []float64) string {
		return fmt.Sprintf("| %s | %.0f | %.0f | %d | %.0f | %.0f |", name, fill, float64(s.Claims)/fill, len(waits), median(waits), percentile(waits, 99))
	}
	return []string{
		"", fmt.Sprintf("## %d nodes, %d claims", s.Nodes, s.Claims), "",
		fmt.Sprintf("`tools/kubernetes scale --nodes %d --claims %d`, Kubernetes %s at revision %s on %s. Nodes and their devices are",
			s.Nodes, s.Claims, s.Release, s.Revision, s.When.Format("2006-01-02 15:04 UTC")),
		fmt.Sprintf("objects. As many pods at once as claims, until all have nodes; then one at a time, beside the %d that hold claims. Pods without",
			s.Claims),
		"a claim are the stock scheduler's. The control plane, the client and other work share two CPUs.", "",
		"| pods | seconds until all have nodes | pods in a second | n | then one at a time, p50 ms | p99 ms |", "|---|---|---|---|---|---|",
		row("with a claim", s.FillSeconds, s.WithClaimMs), row("without", s.FillSecondsWithout, s.WithoutMs), "",
		fmt.Sprintf("The fullest CPU has given %d millionths away.", s.MostPpm),
	}
}
