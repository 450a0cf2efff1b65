package trial

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	corev1 "k8s.io/api/core/v1"
)

const atOnce = 20

// Round is one race: so many claims at once for ten places.
type Round struct {
	// Killed is what dies while they are placed.
	Killed string `json:"killed"`
	// Leads is which of the two kube-schedulers leads, 1 or 2, where they take turns; else 0.
	Leads  int `json:"leads"`
	Placed int `json:"placed"`
	// Allocated counts claims; MostPpm is what the fullest CPU has given away.
	Allocated int     `json:"allocated"`
	MostPpm   int64   `json:"most_ppm"`
	Seconds   float64 `json:"seconds"`
	// Started is how many of those placed the node has started.
	Started int `json:"started"`
	// PlacedAgain and StartedAgain are the same after three have gone.
	PlacedAgain  int `json:"placed_again"`
	StartedAgain int `json:"started_again"`
}

// holds: no more start than there is room for, however many have a place, and so many do where the scheduler kept the account.
func (r Round) holds() bool {
	if r.beyond() {
		return max(r.Started, r.StartedAgain) <= places
	}
	return r.Started == places && r.StartedAgain == places
}

// beyond: the scheduler has given something away twice.
func (r Round) beyond() bool {
	return max(r.Placed, r.PlacedAgain, r.Allocated) > places || r.MostPpm > 900_000
}

// race makes all pods at once, kills something meanwhile, and counts when the scheduler has said its last word of each. The
// node starts whom it can; then three go, and the next three come.
func (c *Cluster) race(ctx context.Context, on *node, number int, killed string) (Round, error) {
	round := Round{Killed: killed}
	began := time.Now()
	if err := c.burst(ctx, number, killed); err != nil {
		return round, err
	}
	now, err := c.settled(ctx, places)
	if err != nil {
		return round, err
	}
	round.Seconds = time.Since(began).Seconds()
	round.Placed = len(now.placed)
	if round.Allocated, round.MostPpm, err = c.sold(ctx); err != nil {
		return round, err
	}
	if round.Started, err = on.start(ctx, now.placed); err != nil {
		return round, err
	}
	gone := now.placed[:3]
	if err := errors.Join(on.end(ctx, gone), c.remove(ctx, gone)); err != nil {
		return round, err
	}
	if now, err = c.settled(ctx, places); err != nil {
		return round, err
	}
	round.PlacedAgain = len(now.placed)
	_, most, err := c.sold(ctx)
	if err != nil {
		return round, err
	}
	round.MostPpm = max(round.MostPpm, most)
	if round.StartedAgain, err = on.start(ctx, now.placed); err != nil {
		return round, err
	}
	return round, errors.Join(on.end(ctx, now.placed), c.empty(ctx))
}

// sold is how many claims have a place, and what the fullest CPU has given away.
func (c *Cluster) sold(ctx context.Context) (allocated int, mostPpm int64, err error) {
	sum, err := c.account(ctx)
	for _, ppm := range sum.consumed {
		mostPpm = max(mostPpm, ppm)
	}
	return sum.allocated, mostPpm, err
}

// start prepares pods' claims, and counts those that the host holds. What else goes wrong is tried again, as kubelet does: a pod
// may be bound before its claim is reserved for it, where the API server died in between.
func (n *node) start(ctx context.Context, pods []corev1.Pod) (int, error) {
	started := 0
	for _, pod := range pods {
		if _, err := n.makeCgroup(string(pod.UID)); err != nil {
			return started, err
		}
		err := until(ctx, "the claim of pod "+pod.Name+" is prepared or refused", func(ctx context.Context) error {
			claim, err := n.cluster.claimOf(ctx, pod)
			if err != nil {
				return err
			}
			err = n.prepare(ctx, claim)
			if err == nil {
				started++
			} else if strings.Contains(err.Error(), "cannot hold") {
				return nil
			}
			return err
		})
		if err != nil {
			return started, err
		}
	}
	return started, nil
}

// end unprepares them.
func (n *node) end(ctx context.Context, pods []corev1.Pod) error {
	for _, pod := range pods {
		claim, err := n.cluster.claimOf(ctx, pod)
		if err != nil {
			return err
		}
		if err := n.unprepare(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) burst(ctx context.Context, number int, killed string) error {
	var all sync.WaitGroup
	failed := make([]error, atOnce+1)
	for pod := range atOnce {
		all.Go(func() {
			name := fmt.Sprintf("race-%d-%d", number, pod)
			// Who is told that the server died asks again, as every client does.
			failed[pod] = until(ctx, "pod "+name+" is made", func(ctx context.Context) error {
				err := c.pod(ctx, name, "race")
				if err != nil && isThere(ctx, c, name) {
					return nil
				}
				return err
			})
		})
	}
	all.Go(func() { failed[atOnce] = c.kill(ctx, killed) })
	all.Wait()
	return errors.Join(failed...)
}

func isThere(ctx context.Context, c *Cluster, pod string) bool {
	_, err := c.admin.CoreV1().Pods(tenant).Get(ctx, pod, metav1.GetOptions{})
	return err == nil
}

// kill ends something once the first pod has its place, and starts it anew.
func (c *Cluster) kill(ctx context.Context, what string) error {
	if what == "" {
		return nil
	}
	err := until(ctx, "a first pod is placed", func(ctx context.Context) error {
		now, err := c.pods(ctx)
		if err == nil && len(now.placed) == 0 {
			err = errors.New("none is")
		}
		return err
	})
	if err != nil {
		return err
	}
	switch what {
	case killsScheduler:
		// Both in turn: one of them leads.
		for number, own := range c.schedulers {
			if err := own.kill(); err != nil {
				return err
			}
			if err := c.StartScheduler(number); err != nil {
				return err
			}
		}
		return nil
	case killsAPI:
		if err := c.api.kill(); err != nil {
			return err
		}
		return c.StartAPI(ctx)
	case killsEtcd:
		if err := c.etcd.kill(); err != nil {
			return err
		}
		return c.startEtcd()
	default:
		return fmt.Errorf("nothing is called %q", what)
	}
}

const (
	killsScheduler = "kube-scheduler"
	killsAPI       = "kube-apiserver"
	killsEtcd      = "etcd"
)

// wait is how long one pod waited for its place, from the client's request to the client's news of it.
func (c *Cluster) wait(ctx context.Context, name, template string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	news, err := c.admin.CoreV1().Pods(tenant).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return 0, err
	}
	defer news.Stop()
	began := time.Now()
	if err := c.pod(ctx, name, template); err != nil {
		return 0, err
	}
	for event := range news.ResultChan() {
		pod, isPod := event.Object.(*corev1.Pod)
		if event.Type == watch.Modified && isPod && pod.Spec.NodeName != "" {
			took := time.Since(began)
			return took, c.remove(ctx, []corev1.Pod{*pod})
		}
	}
	return 0, fmt.Errorf("pod %s was not placed within %s", name, askPatience)
}
