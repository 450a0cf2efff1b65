package trial

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// How many pods wait for their nodes at once: enough to keep the scheduler busy.
	underWay = 100
	// How often a filling says how far it is.
	saysEvery = 20 * time.Second
)

// Filling is how pods got their nodes, one beside the other.
type Filling struct {
	Placed  int     `json:"placed"`
	Seconds float64 `json:"seconds"`
	// LastSeconds is what the last tenth of them took.
	LastSeconds float64 `json:"last_seconds"`
}

func (f Filling) rate() float64 { return float64(f.Placed) / f.Seconds }

func (f Filling) lastRate() float64 { return float64(f.Placed-f.Placed*9/10) / f.LastSeconds }

// filler makes pods, each as an earlier one gets its node.
type filler struct {
	cluster        *Cluster
	name, template string
	load           Load
	say            func(string)

	began, said time.Time
	// room has a token for each pod that may be made now. stop ends the making, and made is closed at its end.
	room   chan struct{}
	stop   chan struct{}
	made   chan struct{}
	count  int
	failed error
	placed map[string]bool
	// at has the seconds at which each got its node.
	at []float64
}

// fill makes pods with claims of a template, or without, until all have nodes or the time is over. Those that are made get
// their nodes in any case.
func (c *Cluster) fill(ctx context.Context, name, template string, load Load, say func(string)) (Filling, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now := time.Now()
	own := &filler{
		cluster: c, name: name, template: template, load: load, say: say, began: now, said: now,
		room: make(chan struct{}, underWay), stop: make(chan struct{}), made: make(chan struct{}), placed: map[string]bool{},
	}
	for range underWay {
		own.room <- struct{}{}
	}
	go own.make(ctx)
	over := time.AfterFunc(load.Longest, func() { close(own.stop) })
	defer over.Stop()
	for !own.isDone() {
		if err := own.watch(ctx); err != nil {
			return Filling{}, fmt.Errorf("%d of %d pods have nodes: %w", len(own.placed), load.Claims, err)
		}
	}
	return own.filling(), nil
}

// make makes them one after the other, each once there is room.
func (f *filler) make(ctx context.Context) {
	defer close(f.made)
	for f.count < f.load.Claims && f.failed == nil {
		select {
		case <-f.room:
			f.failed = f.cluster.pod(ctx, fmt.Sprintf("%s-%d", f.name, f.count), f.template)
			f.count++
		case <-f.stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// isDone: no more are made, and all that are have nodes.
func (f *filler) isDone() bool {
	select {
	case <-f.made:
		return f.failed == nil && len(f.placed) == f.count
	default:
		return false
	}
}

// watch notes pods that get their nodes, until all have or the server ends the watch. A new one begins with all that are.
func (f *filler) watch(ctx context.Context) error {
	news, err := f.cluster.admin.CoreV1().Pods(tenant).Watch(ctx, metav1.ListOptions{LabelSelector: "trial=race"})
	if err != nil {
		return err
	}
	defer news.Stop()
	made := f.made
	for !f.isDone() {
		select {
		case event, isOpen := <-news.ResultChan():
			if !isOpen {
				return nil
			}
			if pod, isPod := event.Object.(*corev1.Pod); isPod && pod.Spec.NodeName != "" && !f.placed[pod.Name] {
				f.note(pod.Name)
			}
		case <-made:
			if f.failed != nil {
				return f.failed
			}
			made = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (f *filler) note(pod string) {
	f.placed[pod] = true
	f.at = append(f.at, time.Since(f.began).Seconds())
	f.room <- struct{}{}
	if time.Since(f.said) >= saysEvery {
		f.said = time.Now()
		f.tell()
	}
}

func (f *filler) tell() {
	kind := "without claims"
	if f.template != "" {
		kind = "with claims"
	}
	f.say(fmt.Sprintf("%d of %d pods %s have their nodes after %.0f s", len(f.placed), f.load.Claims, kind, f.at[len(f.at)-1]))
}

func (f *filler) filling() Filling {
	count := len(f.at)
	if count == 0 {
		return Filling{}
	}
	f.tell()
	before := 0.0
	if nine := count * 9 / 10; nine > 0 {
		before = f.at[nine-1]
	}
	return Filling{Placed: count, Seconds: f.at[count-1], LastSeconds: f.at[count-1] - before}
}
