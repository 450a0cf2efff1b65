package node

import (
	"context"
	"reflect"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"steadyvm/k8s/internal/devices"
	"steadyvm/k8s/internal/dropin"
)

// Publisher publishes what a node has.
type Publisher interface {
	PublishResources(ctx context.Context, resources resourceslice.DriverResources) error
}

// Offer publishes what the host has to sell, now and whenever that changes, until the context ends. A host that does not
// say it keeps what it offered: what runs there was sold by it.
func (d *Driver) Offer(ctx context.Context, publisher Publisher, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := d.offer(ctx, publisher); err != nil && ctx.Err() == nil {
			d.Metrics.readings.WithLabelValues(failed).Inc()
			klog.FromContext(ctx).Error(err, "This host does not say what it has to sell")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (d *Driver) offer(ctx context.Context, publisher Publisher) error {
	capacity, err := d.Engine.Capacity(ctx)
	if err != nil {
		return err
	}
	offered, err := devices.Of(capacity, dropin.IsOurs)
	if err != nil {
		return err
	}
	d.Metrics.readings.WithLabelValues(done).Inc()
	if before := d.offered.Load(); before != nil && reflect.DeepEqual(*before, offered) {
		return nil
	}
	pools := map[string]resourceslice.Pool{d.Node: devices.Pool(offered)}
	if err := publisher.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}); err != nil {
		return err
	}
	d.offered.Store(&offered)
	d.Metrics.offer(offered)
	return nil
}

// Offered are the devices that are on offer; none before the host has said what it has.
func (d *Driver) Offered() []resourceapi.Device {
	if offered := d.offered.Load(); offered != nil {
		return *offered
	}
	return nil
}
