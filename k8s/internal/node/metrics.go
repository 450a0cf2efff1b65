package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"

	"steadyvm/k8s/internal/dropin"
	"steadyvm/k8s/internal/reservation"
)

const (
	done   = "done"
	failed = "failed"
)

// Metrics is what Prometheus reads of a driver.
type Metrics struct {
	offered  *prometheus.GaugeVec
	prepares *prometheus.HistogramVec
	readings *prometheus.CounterVec
}

// NewMetrics registers them. Files are counted in the directory when they are read, so no restart loses any.
func NewMetrics(registry prometheus.Registerer, directory string) (*Metrics, error) {
	metrics := &Metrics{
		offered: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "steadyvm_dra_offered_cpu_ppm", Help: "Millionths of a CPU that are on offer to claims.",
		}, []string{"device"}),
		prepares: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "steadyvm_dra_prepare_seconds", Help: "Time to prepare a claim, by how it ended: done or failed.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 12),
		}, []string{"result"}),
		readings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "steadyvm_dra_capacity_readings_total", Help: "Times that the host was asked what it has to sell: done or failed.",
		}, []string{"result"}),
	}
	files := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "steadyvm_dra_prepared_claims", Help: "Claims whose VMs are described to the host.",
	}, func() float64 {
		// A directory that cannot be read shows in the calls that fail.
		files, _ := dropin.Files(directory)
		return float64(len(files))
	})
	for _, collector := range []prometheus.Collector{metrics.offered, metrics.prepares, metrics.readings, files} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return metrics, nil
}

func (m *Metrics) offer(devices []resourceapi.Device) {
	m.offered.Reset()
	for _, device := range devices {
		capacity := device.Capacity[reservation.Capacity].Value
		m.offered.WithLabelValues(device.Name).Set(float64(capacity.Value()))
	}
}

func (m *Metrics) prepared(err error, took time.Duration) {
	result := done
	if err != nil {
		result = failed
	}
	m.prepares.WithLabelValues(result).Observe(took.Seconds())
}
