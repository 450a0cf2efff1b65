package cgroup_test

import (
	"os"
	"path/filepath"
	"testing"

	"steadyvm/k8s/internal/cgroup"
)

func TestAPodIsFoundByItsUIDWhoeverNamesItsCgroup(t *testing.T) {
	const uid, other = "0a1b-2c", "ffff-2c"
	for path, expected := range map[string]bool{
		"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice":                                         true,
		"kubepods.slice/kubepods-pod0a1b_2c.slice":                                                                            true,
		"kubepods/besteffort/pod0a1b-2c":                                                                                      true,
		"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod0a1b_2c.slice": true,
		"kubepods.slice/kubepods-podffff_2c.slice":                                                                            false,
		"a/b/c/d/e/f/g/pod0a1b-2c":                                                                                            false,
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, path, "container"), 0o755); err != nil {
			t.Fatal(err)
		}
		found, err := cgroup.OfPod(root, uid)
		if (err == nil) != expected || (expected && found != "/"+path) {
			t.Errorf("%s: %q, %v", path, found, err)
		}
		if found, err := cgroup.OfPod(root, other+"0"); err == nil {
			t.Errorf("%s: another pod is %q", path, found)
		}
	}
}
