package dropin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"steadyvm/k8s/internal/dropin"
	"steadyvm/k8s/internal/engine"
	"steadyvm/k8s/internal/real"
)

var claim = dropin.Claim{Namespace: "default", Name: "voice-cpu-x7", UID: "0a1b-2c"}

func ns(value int64) *int64 { return &value }

func vms() []engine.VM {
	return []engine.VM{
		{Name: claim.VM(), Class: "rt", Interface: "mpr", PeriodNs: ns(10_000_000), BudgetNs: ns(4_000_000), VCPUs: 1},
		{Name: claim.VM(), Class: "rt", VCPUs: 1, Tasks: []engine.Task{{C: 1_000_000, T: 20_000_000, D: 10_000_000}}},
	}
}

func TestTheHostReadsWhatIsWritten(t *testing.T) {
	for _, vm := range vms() {
		program, root := real.Host(t)
		text, err := dropin.Text(claim, vm, dropin.Place{Cgroup: "/kubepods.slice/kubepods-pod0a1b_2c.slice", CPUs: []int{1}})
		if err != nil {
			t.Fatal(err)
		}
		if read, err := dropin.Read(text); err != nil || read != claim {
			t.Errorf("%s is read as %+v: %v", text, read, err)
		}
		if err := os.WriteFile(filepath.Join(root, "run/steadyvm.d", claim.File()), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		capacity, err := program.Capacity(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(capacity.Held) != 1 || capacity.Held[0].VM != claim.VM() || len(capacity.Held[0].CPUs) != 1 || capacity.Held[0].CPUs[0] != 1 {
			t.Errorf("%s is held as %+v", text, capacity.Held)
		}
	}
}

// The lab's test of pods (crates/steadyvm-lab/tests/lab/pods.rs) gives the same files to a host with VMs.
func TestTheLabsFilesAreThoseThatAreWritten(t *testing.T) {
	lab := dropin.Claim{Namespace: "default", Name: "voice-cpu-x7", UID: "6e1b2c4d-0f3a-4b5c-8d7e-9a0b1c2d3e4f"}
	pod := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%s.slice"
	for file, expected := range map[string]struct {
		vm    engine.VM
		place dropin.Place
	}{
		"one-vcpu.toml": {
			engine.VM{Class: "rt", Interface: "mpr", PeriodNs: ns(10_000_000), BudgetNs: ns(4_000_000), VCPUs: 1},
			dropin.Place{Cgroup: fmt.Sprintf(pod, "11111111_2222_3333_4444_555555555555"), CPUs: []int{1}},
		},
		"two-vcpus.toml": {
			engine.VM{Class: "rt", Interface: "mpr", PeriodNs: ns(10_000_000), BudgetNs: ns(6_000_000), VCPUs: 2},
			dropin.Place{Cgroup: fmt.Sprintf(pod, "66666666_7777_8888_9999_aaaaaaaaaaaa"), CPUs: []int{1, 0}},
		},
		"threads.toml": {
			engine.VM{Class: "rt", Interface: "mpr", PeriodNs: ns(10_000_000), BudgetNs: ns(4_000_000), VCPUs: 1},
			dropin.Place{
				Cgroup: fmt.Sprintf(pod, "bbbbbbbb_cccc_dddd_eeee_ffffffffffff"), Threads: "cycle*", CPUs: []int{1},
			},
		},
	} {
		text, err := dropin.Text(lab, expected.vm, expected.place)
		if err != nil {
			t.Fatal(err)
		}
		written, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil || string(written) != text {
			t.Errorf("testdata/%s has to be\n%s\nand is\n%s: %v", file, text, written, err)
		}
	}
}

func TestDamagedFilesAreNoClaims(t *testing.T) {
	for _, text := range []string{"", "x", "[[vm]]\nname = \"own\"\n", "[[vm]]\nname = \"kubernetes/a\"\n", "[[vm]]\n[[vm]]\n"} {
		if read, err := dropin.Read(text); err == nil {
			t.Errorf("%q is %+v", text, read)
		}
	}
}

func locked(t *testing.T, path string) *dropin.Directory {
	t.Helper()
	directory, err := dropin.Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return directory
}

func TestAFileCountsOnlyIfItIsAdmittedAndWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steadyvm.d")
	directory := locked(t, path)
	admit := func(string) error { return nil }
	refusal := errors.New("no room")
	if err := directory.Replace("a.toml", "old", admit); err != nil {
		t.Fatal(err)
	}
	if err := directory.Replace("a.toml", "new", func(string) error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("%v", err)
	}
	if text, err := directory.Read("a.toml"); err != nil || text != "old" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.WriteFile(filepath.Join(path, "b.toml.new"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := directory.Close(); err != nil {
		t.Fatal(err)
	}
	directory = locked(t, path)
	defer directory.Close()
	if entries, err := os.ReadDir(path); err != nil || len(entries) != 2 {
		t.Errorf("a killed writer left %v, %v", entries, err)
	}
	for range 2 {
		if err := directory.Remove("a.toml"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneWritesAtATimeAndOthersSayWhoTheyWaitFor(t *testing.T) {
	path := t.TempDir()
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	held := locked(t, path)
	ended, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if _, err := dropin.Lock(ended, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := locked(t, path).Close(); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := dropin.Lock(t.Context(), path); err == nil {
		t.Error("a directory that anybody may write is taken")
	}
}
