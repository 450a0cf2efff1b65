package devices_test

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"steadyvm/k8s/internal/devices"
	"steadyvm/k8s/internal/dropin"
	"steadyvm/k8s/internal/engine"
	"steadyvm/k8s/internal/real"
	"steadyvm/k8s/internal/reservation"
)

func ppm(device resourceapi.Device) int64 {
	value := device.Capacity[reservation.Capacity].Value
	return value.Value()
}

func TestANodeOffersWhatTheHostSays(t *testing.T) {
	program, _ := real.Host(t)
	capacity, err := program.Capacity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	offered, err := devices.Of(capacity, dropin.IsOurs)
	if err != nil {
		t.Fatal(err)
	}
	if len(offered) != 2 {
		t.Fatalf("%d devices", len(offered))
	}
	for number, device := range offered {
		cpu, err := devices.CPU(device.Name)
		if err != nil || cpu != number || ppm(device) != capacity.CPUPpm {
			t.Errorf("%s has %d of %d: %v", device.Name, ppm(device), capacity.CPUPpm, err)
		}
		if *device.Attributes["kernelRelease"].StringValue != capacity.KernelRelease || !*device.AllowMultipleAllocations {
			t.Errorf("%+v", device)
		}
	}
}

func TestWhatOthersHoldIsNotForSale(t *testing.T) {
	capacity := engine.Capacity{
		Scheduler: "pedf", Mechanism: "deadline", CPUs: []int{2, 3, 4}, CPUPpm: 900_000,
		Held: []engine.Held{
			{VM: "libvirt's", BudgetNs: 1, PeriodNs: 3, CPUs: []int{3, 3}},
			{VM: "all of it", BudgetNs: 9, PeriodNs: 10, CPUs: []int{4}},
			{VM: dropin.Claim{Namespace: "a", Name: "b", UID: "c"}.VM(), BudgetNs: 1, PeriodNs: 2, CPUs: []int{2}},
		},
		Cards: []engine.Card{{Name: "eth0", Class: "best-effort"}, {Name: "eth1", Class: "best-effort"}},
	}
	offered, err := devices.Of(capacity, dropin.IsOurs)
	if err != nil {
		t.Fatal(err)
	}
	if len(offered) != 2 || ppm(offered[0]) != 900_000 || ppm(offered[1]) != 900_000-2*333_334 {
		t.Errorf("%+v", offered)
	}
	if cards := *offered[0].Attributes["cards_best_effort"].StringValue; cards != "eth0,eth1" {
		t.Errorf("cards are %q", cards)
	}
}

func TestAHostThatCannotSellSaysWhatToWrite(t *testing.T) {
	for _, wrong := range []struct{ scheduler, mechanism, words string }{
		{"gedf", "deadline", "pedf"},
		{"pedf", "none", "enforce"},
	} {
		_, err := devices.Of(engine.Capacity{Scheduler: wrong.scheduler, Mechanism: wrong.mechanism}, dropin.IsOurs)
		if err == nil || !strings.Contains(err.Error(), wrong.words) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

func TestOnlyOurDevicesAreCPUs(t *testing.T) {
	for _, name := range []string{"", "cpu-", "cpu--1", "cpu-01", "gpu-1", "cpu-1x"} {
		if cpu, err := devices.CPU(name); err == nil {
			t.Errorf("%q is CPU %d", name, cpu)
		}
	}
}

func TestAPoolIsCutIntoSlicesThatTheAPITakes(t *testing.T) {
	for count, expected := range map[int]int{0: 1, 1: 1, 128: 1, 129: 2, 300: 3} {
		pool := devices.Pool(make([]resourceapi.Device, count))
		total := 0
		for _, slice := range pool.Slices {
			total += len(slice.Devices)
		}
		if len(pool.Slices) != expected || total != count {
			t.Errorf("%d devices: %d slices of %d", count, len(pool.Slices), total)
		}
	}
}
