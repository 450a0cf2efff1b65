// Package devices makes devices of what a host has to sell: one a CPU, whose capacity claims consume.
package devices

import (
	"fmt"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"steadyvm/k8s/internal/engine"
	"steadyvm/k8s/internal/reservation"
)

const prefix = "cpu-"

// Name is the device of a CPU.
func Name(cpu int) string { return prefix + strconv.Itoa(cpu) }

// CPU is the CPU of a device.
func CPU(device string) (int, error) {
	number, found := strings.CutPrefix(device, prefix)
	cpu, err := strconv.Atoi(number)
	if !found || err != nil || cpu < 0 || Name(cpu) != device {
		return 0, fmt.Errorf("device %q is none of this driver's, which are %s0 and up", device, prefix)
	}
	return cpu, nil
}

// Of makes the devices of a host. What VMs hold that are not ours is not for sale; isOurs tells by a VM's name.
func Of(capacity engine.Capacity, isOurs func(vm string) bool) ([]resourceapi.Device, error) {
	if capacity.Scheduler != "pedf" {
		return nil, fmt.Errorf(
			"the host's file has scheduler = %q, under which VCPUs have no CPU of their own, and claims are for one: "+
				"write scheduler = \"pedf\" into [host]", capacity.Scheduler)
	}
	if capacity.Mechanism == "none" {
		return nil, fmt.Errorf("nothing keeps budgets on this host: write enforce = \"auto\" into [host]")
	}
	free := make(map[int]int64, len(capacity.CPUs))
	for _, cpu := range capacity.CPUs {
		free[cpu] = capacity.CPUPpm
	}
	for _, held := range capacity.Held {
		if isOurs(held.VM) || held.PeriodNs <= 0 {
			continue
		}
		for _, cpu := range held.CPUs {
			free[cpu] -= (held.BudgetNs*1_000_000 + held.PeriodNs - 1) / held.PeriodNs
		}
	}
	attributes := attributes(capacity)
	var devices []resourceapi.Device
	for _, cpu := range capacity.CPUs {
		if free[cpu] <= 0 {
			continue
		}
		devices = append(devices, device(cpu, free[cpu], attributes))
	}
	return devices, nil
}

func device(cpu int, ppm int64, shared map[resourceapi.QualifiedName]resourceapi.DeviceAttribute) resourceapi.Device {
	whole := *resource.NewQuantity(ppm, resource.DecimalSI)
	one := *resource.NewQuantity(1, resource.DecimalSI)
	isShared := true
	number := int64(cpu)
	attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"cpu": {IntValue: &number}}
	for name, attribute := range shared {
		attributes[name] = attribute
	}
	return resourceapi.Device{
		Name:                     Name(cpu),
		AllowMultipleAllocations: &isShared,
		Attributes:               attributes,
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			reservation.Capacity: {
				Value: whole,
				RequestPolicy: &resourceapi.CapacityRequestPolicy{
					// Who does not say how much gets all that is left, and so shares it with nobody.
					Default:    &whole,
					ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &one, Max: &whole, Step: &one},
				},
			},
		},
	}
}

func attributes(capacity engine.Capacity) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	text := func(value string) resourceapi.DeviceAttribute {
		if len(value) > resourceapi.DeviceAttributeMaxValueLength {
			value = value[:resourceapi.DeviceAttributeMaxValueLength]
		}
		return resourceapi.DeviceAttribute{StringValue: &value}
	}
	all := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"kernelRelease": text(capacity.KernelRelease),
		"preemptRt":     {BoolValue: &capacity.PreemptRT},
		"mechanism":     text(capacity.Mechanism),
		"scheduler":     text(capacity.Scheduler),
	}
	cards := map[string][]string{}
	for _, card := range capacity.Cards {
		cards[card.Class] = append(cards[card.Class], card.Name)
	}
	for class, names := range cards {
		// An attribute's name is an identifier of C, of at most 32 bytes.
		name := "cards_" + strings.ReplaceAll(class, "-", "_")
		if len(name) <= resourceapi.DeviceMaxIDLength {
			all[resourceapi.QualifiedName(name)] = text(strings.Join(names, ","))
		}
	}
	return all
}

// Pool makes the slices of a node's pool.
func Pool(devices []resourceapi.Device) resourceslice.Pool {
	var slices []resourceslice.Slice
	for start := 0; start < len(devices); start += resourceapi.ResourceSliceMaxDevices {
		end := min(start+resourceapi.ResourceSliceMaxDevices, len(devices))
		slices = append(slices, resourceslice.Slice{Devices: devices[start:end]})
	}
	if slices == nil {
		// Empty says that the driver is there and has nothing to sell.
		slices = []resourceslice.Slice{{}}
	}
	return resourceslice.Pool{Slices: slices}
}
